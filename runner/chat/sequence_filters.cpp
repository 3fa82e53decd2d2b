// Filters of lists and dictionaries.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "runner/base/text.hpp"
#include "runner/chat/builtins.hpp"
#include "runner/chat/interpreter.hpp"
#include "runner/chat/operators.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace sequence_filter {
namespace {
Value length(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "length", {});
  return length_of(subject);
}

Value first(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "first", {});
  auto none = [] {
    return Value::undefined(Missing{.owner = {}, .name = {}, .message = "No first item, sequence was empty."});
  };
  if (subject.is_sequence(Form::generator)) {  // reads only one item
    auto& generator = subject.as_sequence();
    return generator.next < generator.items.size() ? generator.items[generator.next++] : none();
  }
  Items items(subject);
  return items.size() == 0 ? none() : *items.begin();
}

Value last(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "last", {});
  if (subject.is_sequence(Form::generator))
    throw Fault{"'generator' object is not reversible; add | list before | last"};
  Items items(subject);
  if (items.size() == 0)
    return Value::undefined(Missing{.owner = {}, .name = {}, .message = "No last item, sequence was empty."});
  return items.all().back();
}

Value list(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "list", {});
  Items items(subject);
  return Value::sequence({items.begin(), items.end()});
}

Value reverse(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "reverse", {});
  if (subject.is_text()) return slice(subject, {}, {}, -1);
  bool iterator = !subject.is_sequence(Form::generator);
  Items items(subject);
  std::vector<Value> reversed(items.begin(), items.end());
  std::reverse(reversed.begin(), reversed.end());
  return Value::sequence(std::move(reversed), iterator ? Form::generator : Form::list);
}

Value items(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "items", {});
  if (!subject.is_undefined() && !subject.is_dict()) throw Fault{"Can only get item pairs from a mapping."};
  std::vector<Value> pairs;
  if (subject.is_dict())
    for (auto& [key, value] : subject.as_dict().items) pairs.push_back(Value::sequence({key, value}, Form::tuple));
  return Value::sequence(std::move(pairs), Form::generator);
}

Value ignore_case(const Value& value) { return value.is_text() ? Value(lower_case(value.bytes())) : value; }

/// The sort key of an item: one attribute or several with commas between.
Value sort_key(Interpreter& interpreter, const Value& item, const Value* attribute, bool case_sensitive) {
  auto finish = [&](const Value& value) { return case_sensitive ? value : ignore_case(value); };
  if (!attribute) return finish(item);
  if (!attribute->is_text()) return finish(attribute_path(interpreter, item, *attribute));
  check_path(*attribute);
  std::vector<Value> keys;
  for (auto& name : split(attribute->bytes(), ','))
    keys.push_back(finish(attribute_path(interpreter, item, Value(name))));
  return Value::sequence(std::move(keys));
}

/// Stable, also in reverse, as Python's sorted().
std::vector<Value> sorted_by(std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](auto& a, auto& b) { return reverse ? less(b.first, a.first) : less(a.first, b.first); });
  std::vector<Value> result;
  for (auto& [key, value] : keyed) result.push_back(std::move(value));
  return result;
}

Value sort(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (auto& item : Items(subject))
    keyed.emplace_back(sort_key(interpreter, item, bound.given(2) ? &bound[2] : nullptr, bound.truth(1, false)), item);
  return Value::sequence(sorted_by(std::move(keyed), bound.truth(0, false)));
}

Value dict_sort(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  if (!subject.is_dict())
    throw Fault{subject.is_undefined() ? subject.why_undefined()
                                       : fmt::format("dictsort needs a mapping, not {}", subject.type_name())};
  auto by = bound.has(1) ? bound.text(1) : std::string("key");
  if (by != "key" && by != "value") throw Fault{"You can only sort by either \"key\" or \"value\""};
  std::vector<std::pair<Value, Value>> keyed;
  for (auto& [key, value] : subject.as_dict().items) {
    auto& chosen = by == "key" ? key : value;
    keyed.emplace_back(bound.truth(0, false) ? chosen : ignore_case(chosen),
                       Value::sequence({key, value}, Form::tuple));
  }
  return Value::sequence(sorted_by(std::move(keyed), bound.truth(2, false)));
}

Value unique(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> result;
  std::unordered_multimap<size_t, Value> seen;
  for (auto& item : Items(subject)) {
    auto key = bound.given(1) ? attribute_path(interpreter, item, bound[1]) : item;
    if (!bound.truth(0, false)) key = ignore_case(key);
    check_hashable(key);
    const auto hash = hash_of(key);
    auto [same, end] = seen.equal_range(hash);
    if (std::any_of(same, end, [&](auto& other) { return equal(other.second, key); })) continue;
    seen.emplace(hash, std::move(key));
    result.push_back(item);
  }
  return Value::sequence(std::move(result), Form::generator);
}

template <bool largest>
Value extreme(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, largest ? "max" : "min", {"case_sensitive", "attribute"});
  Items items(subject);
  if (items.size() == 0)
    return Value::undefined(Missing{.owner = {}, .name = {}, .message = "No aggregated item, sequence was empty."});
  std::optional<std::pair<Value, Value>> best;
  for (auto& item : items) {
    auto key = bound.given(1) ? attribute_path(interpreter, item, bound[1]) : item;
    if (!bound.truth(0, false)) key = ignore_case(key);
    if (!best || (largest ? less(best->first, key, ">") : less(key, best->first))) best.emplace(key, item);
  }
  return best->second;
}

Value sum(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "sum", {"attribute", "start"});
  Value total = bound.value(1, 0);
  if (total.is_text()) throw Fault{"sum() can't sum strings [use ''.join(seq) instead]"};
  for (auto& item : Items(subject))
    total = binary(Op::add, total, bound.given(0) ? attribute_path(interpreter, item, bound[0]) : item);
  return total;
}

/// Lists of `linecount` items.
Value batch(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "batch", {"linecount", "fill_with"}, 1);
  auto size = static_cast<size_t>(std::max<int64_t>(1, integer_of(bound[0])));
  std::vector<Value> batches, line;
  for (auto& item : Items(subject)) {
    if (line.size() == size) batches.push_back(Value::sequence(std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    if (bound.given(1) && line.size() < size) {
      check_size(std::min(size, template_value_bytes_max) * sizeof(Value));
      line.resize(size, bound[1]);
    }
    batches.push_back(Value::sequence(std::move(line)));
  }
  return Value::sequence(std::move(batches), Form::generator);
}

/// `slices` lists of about the same length.
Value columns(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "slice", {"slices", "fill_with"}, 1);
  Items items(subject);
  int64_t count = integer_of(bound[0]);
  if (count == 0) throw Fault{"integer division or modulo by zero"};
  if (count < 0 || count > 100'000) throw Fault{"slice needs 1 to 100000 slices"};
  auto slices = static_cast<size_t>(count);
  size_t each = items.size() / slices, extra = items.size() % slices, at = 0;
  std::vector<Value> result;
  for (size_t i = 0; i < slices; ++i) {
    size_t size = each + (i < extra ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(at),
                            items.begin() + static_cast<std::ptrdiff_t>(at + size));
    if (bound.given(1) && i >= extra) part.push_back(bound[1]);
    result.push_back(Value::sequence(std::move(part)));
    at += size;
  }
  return Value::sequence(std::move(result), Form::generator);
}

Value map(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  std::vector<Value> result;
  if (!subject.truth()) return Value::sequence({}, Form::generator);
  if (arguments.positional.empty()) {
    Bound bound(arguments, "map", {"attribute", "default"});
    if (!bound.has(0)) throw Fault{"map requires a filter argument"};
    for (auto& item : Items(subject))
      result.push_back(attribute_path(interpreter, item, bound[0], bound.given(1) ? &bound[1] : nullptr));
  } else {
    if (!arguments.positional[0].is_text()) throw Fault{"map needs the name of a filter"};
    auto name = arguments.positional[0].bytes();
    Arguments rest{.positional = {arguments.positional.begin() + 1, arguments.positional.end()},
                   .named = arguments.named};
    for (auto& item : Items(subject)) result.push_back(interpreter.run_filter(name, item, rest));
  }
  return Value::sequence(std::move(result), Form::generator);
}

/// select, reject, selectattr, rejectattr.
template <bool keep, bool by_attribute>
Value select(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  std::vector<Value> result;
  auto& given = arguments.positional;
  size_t skip = by_attribute ? 1 : 0;
  if (!subject.truth()) return Value::sequence({}, Form::generator);
  if (by_attribute && given.empty()) throw Fault{"Missing parameter for attribute name"};
  bool tested = given.size() > skip;
  if (tested && !given[skip].is_text()) throw Fault{"the test must be a name"};
  Arguments rest;
  if (tested)
    rest = Arguments{.positional = {given.begin() + static_cast<std::ptrdiff_t>(skip) + 1, given.end()},
                     .named = arguments.named};
  for (auto& item : Items(subject)) {
    auto value = by_attribute ? attribute_path(interpreter, item, given[0]) : item;
    bool accepted = tested ? interpreter.run_test(given[skip].bytes(), value, rest) : value.truth();
    if (accepted == keep) result.push_back(item);
  }
  return Value::sequence(std::move(result), Form::generator);
}

// clang-format off
constexpr Builtin table[] = {
    {"length", length}, {"count", length}, {"first", first}, {"last", last}, {"list", list}, {"reverse", reverse}, {"items", items},
    {"sort", sort}, {"dictsort", dict_sort}, {"unique", unique}, {"min", extreme<false>}, {"max", extreme<true>}, {"sum", sum},
    {"batch", batch}, {"slice", columns}, {"map", map}, {"select", select<true, false>}, {"reject", select<false, false>},
    {"selectattr", select<true, true>}, {"rejectattr", select<false, true>},
    {"groupby", nullptr}, {"random", nullptr},
};
// clang-format on
}  // namespace
}  // namespace sequence_filter

std::span<const Builtin> sequence_filters() { return sequence_filter::table; }

}  // namespace runner::jinja
