// Tables of filters and methods, the arguments of functions, and the methods of dictionaries, lists and numbers.
#include "runner/chat/builtins.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/chat/print.hpp"

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

}  // namespace runner::jinja
