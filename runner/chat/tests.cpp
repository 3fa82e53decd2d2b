// The tests of templates: the words after "is".
#include <algorithm>

#include "runner/chat/builtins.hpp"
#include "runner/chat/operators.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace value_test {
namespace {
template <bool (*test)(const Value&)>
Value plain(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "this test", {});
  return test(subject);
}

template <Op op>
Value compared(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "this test", {"other"}, 1);
  return compare(op, subject, bound[0]);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is(Kind::none); }
bool is_boolean(const Value& value) { return value.is(Kind::boolean); }
bool is_true(const Value& value) { return value.is(Kind::boolean) && value.boolean(); }
bool is_false(const Value& value) { return value.is(Kind::boolean) && !value.boolean(); }
bool is_integer(const Value& value) { return value.is(Kind::integer) || value.is(Kind::large); }
bool is_float(const Value& value) { return value.is(Kind::real); }
bool is_number(const Value& value) { return value.is_number() || value.is(Kind::large); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.is_dict(); }
bool is_escaped(const Value& value) { return value.safe(); }
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is(Kind::object) && value.object().callable());
}
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_dict() ||
         (value.is(Kind::sequence) && value.as_sequence().form <= Form::range);
}
bool is_filter(const Value& value) { return value.is_text() && find_filter(value.bytes()); }
bool is_test(const Value& value) { return value.is_text() && find_test(value.bytes()); }

bool has_case(const Value& value, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  std::string text = to_text(value);
  bool found = false, wrong = false;
  for_each_code_point(text, [&](std::string_view point) {
    found |= wanted(decode(point));
    wrong |= other(decode(point));
  });
  return found && !wrong;
}
bool is_lower_text(const Value& value) { return has_case(value, is_lower, is_no_lower); }
bool is_upper_text(const Value& value) { return has_case(value, is_upper, is_no_upper); }

Value rest_is(const Value& subject, int64_t divisor, int64_t rest) {
  return equal(binary(Op::modulo, subject, divisor), rest);
}
Value even(Interpreter&, const Value& subject, Arguments&) { return rest_is(subject, 2, 0); }
Value odd(Interpreter&, const Value& subject, Arguments&) { return rest_is(subject, 2, 1); }
Value divisible(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "divisibleby", {"num"}, 1);
  return equal(binary(Op::modulo, subject, bound[0]), 0);
}
Value same_as(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "sameas", {"other"}, 1);
  return identical(subject, bound[0]);
}
Value in(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "in", {"seq"}, 1);
  return contains(bound[0], subject);
}

// clang-format off
constexpr Builtin table[] = {
    {"defined", plain<is_defined>}, {"undefined", plain<is_undefined>}, {"none", plain<is_none>}, {"boolean", plain<is_boolean>},
    {"true", plain<is_true>}, {"false", plain<is_false>}, {"integer", plain<is_integer>}, {"float", plain<is_float>},
    {"number", plain<is_number>}, {"string", plain<is_string>}, {"mapping", plain<is_mapping>}, {"sequence", plain<is_sequence>},
    {"iterable", plain<is_iterable>}, {"callable", plain<is_callable>}, {"escaped", plain<is_escaped>}, {"lower", plain<is_lower_text>},
    {"upper", plain<is_upper_text>}, {"filter", plain<is_filter>}, {"test", plain<is_test>}, {"even", even}, {"odd", odd},
    {"divisibleby", divisible}, {"sameas", same_as}, {"in", in},
    {"eq", compared<Op::equal>}, {"equalto", compared<Op::equal>}, {"==", compared<Op::equal>}, {"ne", compared<Op::unequal>},
    {"!=", compared<Op::unequal>}, {"lt", compared<Op::less>}, {"lessthan", compared<Op::less>}, {"<", compared<Op::less>},
    {"le", compared<Op::less_equal>}, {"<=", compared<Op::less_equal>}, {"gt", compared<Op::greater>}, {"greaterthan", compared<Op::greater>},
    {">", compared<Op::greater>}, {"ge", compared<Op::greater_equal>}, {">=", compared<Op::greater_equal>},
};
// clang-format on
}  // namespace
}  // namespace value_test

const Builtin* find_test(std::string_view name) {
  for (auto& row : value_test::table)
    if (row.name == name) return &row;
  return nullptr;
}

std::vector<std::string> test_names() {
  std::vector<std::string> names;
  for (auto& row : value_test::table) names.emplace_back(row.name);
  return names;
}

}  // namespace runner::jinja
