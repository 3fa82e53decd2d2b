// Tables of filters and methods, the functions that every template has, their arguments, the tests (the words after "is"), and the methods
// of dictionaries, lists and numbers.
#include "runner/chat/builtins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "runner/chat/interpreter.hpp"
#include "runner/chat/operators.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {

namespace {

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  auto found = std::find_if(table.begin(), table.end(), [&](const Builtin& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

void add_names(std::vector<std::string>& names, std::span<const Builtin> table) {
  for (auto& row : table)
    if (row.run) names.emplace_back(row.name);
}

// ---- Methods of dictionaries, lists and numbers.
Value dict_get(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "get", {"key", "default"}, 1);
  check_hashable(bound[0]);
  auto* found = self.as_dict().find(bound[0]);
  return found ? *found : bound.value(1, {});
}

Value dict_parts(const Value& self, Arguments& arguments, Form form) {
  Bound bound(arguments, "this method", {});
  std::vector<Value> items;
  for (auto& [key, value] : self.as_dict().items)
    items.push_back(form == Form::keys     ? key
                    : form == Form::values ? value
                                           : Value::sequence({key, value}, Form::tuple));
  return Value::sequence(std::move(items), form);
}

Value copied(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "copy", {});
  return self;  // nothing can change it
}

Value list_count(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "count", {"value"}, 1);
  auto& items = self.as_sequence().items;
  return static_cast<int64_t>(
      std::count_if(items.begin(), items.end(), [&](auto& item) { return equal(item, bound[0]); }));
}

Value list_index(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "index", {"value", "start", "stop"}, 1);
  auto& items = self.as_sequence().items;
  auto size = static_cast<int64_t>(items.size());
  auto from_end = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  for (int64_t i = from_end(bound.integer(1, 0)); i < from_end(bound.integer(2, size)); ++i)
    if (equal(items[static_cast<size_t>(i)], bound[0])) return i;
  throw Fault{fmt::format("{} is not in {}", to_repr(bound[0]), self.type_name())};
}

Value float_is_integer(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "is_integer", {});
  return self.real() == static_cast<double>(static_cast<int64_t>(self.real()));
}

constexpr Builtin dict_methods[] = {
    {"get", dict_get},
    {"items",
     [](Interpreter&, const Value& self, Arguments& arguments) { return dict_parts(self, arguments, Form::items); }},
    {"keys",
     [](Interpreter&, const Value& self, Arguments& arguments) { return dict_parts(self, arguments, Form::keys); }},
    {"values",
     [](Interpreter&, const Value& self, Arguments& arguments) { return dict_parts(self, arguments, Form::values); }},
    {"copy", copied},
    {"fromkeys", nullptr},
};
constexpr Builtin list_methods[] = {{"count", list_count}, {"index", list_index}, {"copy", copied}};
constexpr Builtin tuple_methods[] = {{"count", list_count}, {"index", list_index}};
constexpr Builtin float_methods[] = {{"is_integer", float_is_integer}, {"as_integer_ratio", nullptr}, {"hex", nullptr}};
constexpr Builtin integer_methods[] = {{"bit_length", nullptr}, {"to_bytes", nullptr}, {"as_integer_ratio", nullptr}};

std::span<const Builtin> methods_of(const Value& value) {
  switch (value.kind()) {
    case Kind::text:
      return text_methods();
    case Kind::dict:
      return dict_methods;
    case Kind::real:
      return float_methods;
    case Kind::boolean:
    case Kind::integer:
      return integer_methods;
    case Kind::sequence:
      if (value.as_sequence().form == Form::list) return list_methods;
      if (value.as_sequence().form <= Form::range) return tuple_methods;
      return {};
    default:
      return {};
  }
}

Value function(std::string name, Function::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::move(name), std::move(body))));
}

/// At most 100,000 numbers, as in jinja2's sandbox.
Value range(Interpreter&, Arguments& arguments) {
  Bound bound(arguments, "range", {"start", "stop", "step"}, 1);
  bool only_stop = !bound.has(1);
  int64_t begin = only_stop ? 0 : integer_of(bound[0]), end = integer_of(bound[only_stop ? 0 : 1]);
  int64_t step = bound.has(2) ? integer_of(bound[2]) : 1;
  if (step == 0) throw Fault{"range() arg 3 must not be zero"};
  std::vector<Value> items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (items.size() >= 100'000) throw Fault{"Range too big. The sandbox blocks ranges larger than 100000 items."};
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::sequence(std::move(items), Form::range);
}

Dict dict_of(Arguments& arguments, std::string_view function) {
  if (arguments.positional.size() > 1)
    throw Fault{fmt::format("{} expected at most 1 argument, got {}", function, arguments.positional.size())};
  Dict dict;
  if (!arguments.positional.empty()) {
    auto& first = arguments.positional[0];
    if (first.is_undefined()) throw Fault{first.why_undefined()};
    if (first.is_dict()) {
      dict = first.as_dict();
    } else {
      for (auto& pair : Items(first)) {
        Items both(pair);
        if (both.size() != 2) throw Fault{fmt::format("{} needs pairs of a key and a value", function)};
        dict.set(both.all()[0], both.all()[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) dict.set(Value(name), value);
  return dict;
}

Value raise_exception(Interpreter&, Arguments& arguments) {
  Bound bound(arguments, "raise_exception", {"message"}, 1);
  throw RaisedMessage{to_text(bound[0])};
}

Value strftime_now(Interpreter& interpreter, Arguments& arguments) {
  Bound bound(arguments, "strftime_now", {"format"}, 1);
  auto format = bound.text(0);
  if (format.size() > 1000) throw Fault{"the format of a time is longer than 1000 bytes"};
  for (size_t at = 0; (at = format.find('%', at)) != format.npos; at += 2)
    if (format.compare(at, 2, "%f") == 0) format.replace(at, 2, "000000"), at += 4;
  if (format.empty()) return "";
  auto now = interpreter.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 4096> buffer;
  size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  return std::string(buffer.data(), length);
}

/// Items in turn: cycler.next(), .current, .reset().
class Cycler final : public Object {
 public:
  Cycler(std::vector<Value> items, int depth) : Object(depth), items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(std::string_view name) const override {
    auto self = std::const_pointer_cast<Cycler>(std::static_pointer_cast<const Cycler>(shared_from_this()));
    if (name == "current") return items_[at_];
    if (name == "next")
      return function("next", [self](Interpreter&, Arguments&) {
        return self->items_[std::exchange(self->at_, (self->at_ + 1) % self->items_.size())];
      });
    if (name == "reset") return function("reset", [self](Interpreter&, Arguments&) { return self->at_ = 0, Value(); });
    return std::nullopt;
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

Value cycler(Interpreter&, Arguments& arguments) {
  if (arguments.positional.empty()) throw Fault{"at least one item has to be provided"};
  int depth = Value::sequence(arguments.positional).depth();
  return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(arguments.positional, depth)));
}

/// Empty at the first call, the separator at the others.
Value joiner(Interpreter&, Arguments& arguments) {
  Bound bound(arguments, "joiner", {"sep"});
  auto separator = bound.value(0, ", ");
  auto used = std::make_shared<bool>(false);
  return function("joiner", [separator, used](Interpreter&, Arguments&) {
    return std::exchange(*used, true) ? separator : Value("");
  });
}

const std::array<std::pair<std::string_view, Value>, 7>& functions_by_name() {
  static const std::array<std::pair<std::string_view, Value>, 7> functions = {{
      {"range", function("range", range)},
      {"dict",
       function("dict", [](Interpreter&, Arguments& arguments) { return Value::dict(dict_of(arguments, "dict")); })},
      {"namespace", function("namespace",
                             [](Interpreter& interpreter, Arguments& arguments) {
                               return interpreter.new_namespace(dict_of(arguments, "namespace"));
                             })},
      {"raise_exception", function("raise_exception", raise_exception)},
      {"strftime_now", function("strftime_now", strftime_now)},
      {"cycler", function("cycler", cycler)},
      {"joiner", function("joiner", joiner)},
  }};
  return functions;
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  for (auto table : {text_filters(), sequence_filters(), value_filters()})
    if (auto* found = find_in(table, name)) return found;
  return nullptr;
}

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (auto table : {text_filters(), sequence_filters(), value_filters()}) add_names(names, table);
  return names;
}

const Builtin* find_method(const Value& value, std::string_view name) { return find_in(methods_of(value), name); }

std::vector<std::string> method_names(const Value& value) {
  std::vector<std::string> names;
  add_names(names, methods_of(value));
  return names;
}

int64_t integer_of(const Value& value) {
  if (value.is_whole()) return value.integer();
  if (value.is_undefined()) throw Fault{value.why_undefined()};
  throw Fault{fmt::format("an integer is needed, not {}", value.type_name())};
}

Bound::Bound(Arguments& arguments, std::string_view function, std::initializer_list<std::string_view> parameters,
             size_t required)
    : function_(function), values_(parameters.size(), Value::absent()) {
  auto& given = arguments.positional;
  if (given.size() > parameters.size())
    throw Fault{fmt::format("{} takes at most {} argument{}, not {}", function, parameters.size(),
                            parameters.size() == 1 ? "" : "s", given.size())};
  std::copy(given.begin(), given.end(), values_.begin());
  for (auto& [name, value] : arguments.named) {
    auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) throw Fault{fmt::format("{} has no parameter {}", function, name)};
    auto& place = values_[static_cast<size_t>(found - parameters.begin())];
    if (!place.is(Kind::absent)) throw Fault{fmt::format("{} got {} twice", function, name)};
    place = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!has(i)) throw Fault{fmt::format("{} needs the argument {}", function, *(parameters.begin() + i))};
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  return has(i) && !values_[i].is(Kind::none) ? integer_of(values_[i]) : otherwise;
}

const std::string& Bound::text(size_t i) const {
  if (!has(i) || !values_[i].is_text())
    throw Fault{fmt::format("{} needs a string, not {}", function_, has(i) ? values_[i].type_name() : "nothing")};
  return values_[i].bytes();
}

Value global_function(std::string_view name) {
  for (auto& [other, value] : functions_by_name())
    if (other == name) return value;
  return Value::absent();
}

std::vector<std::string> function_names() {
  std::vector<std::string> names;
  for (auto& row : functions_by_name()) names.emplace_back(row.first);
  return names;
}

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
