#include "runner/chat/value.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/limits.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace {
constexpr size_t object_bytes = 160;  // about: the largest object with its parts and the block of its shared pointer

template <typename T>
struct Held : T {
  Held(T value, size_t bytes) : T(std::move(value)), bytes(bytes) { hold(bytes); }
  ~Held() { release(bytes); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  size_t bytes;
};

template <typename T>
std::shared_ptr<void> held(T value, size_t bytes) {
  return std::shared_ptr<T>(std::make_shared<Held<T>>(std::move(value), bytes + object_bytes));
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  spend(1 + std::min(a.size(), b.size()) / 8);
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  for (auto& [key, value] : a.items) {
    auto* other = b.find(key);
    if (!other || !equal(value, *other)) return false;
  }
  return true;
}

int checked_depth(int inner) {
  if (inner >= int{json_depth_max})
    throw Fault{fmt::format("lists and dictionaries are nested more than {} deep", json_depth_max)};
  return inner + 1;
}

bool is_ordered_form(Form form) { return form == Form::list || form == Form::tuple; }
}  // namespace

Value::Value(std::string text, bool safe) : kind_(Kind::text) {
  bool ascii = unicode::is_ascii(text);
  const size_t size = text.size();
  pointer_ = held(Text{.bytes = std::move(text), .ascii = ascii, .safe = safe}, size);
}

Value Value::no_text() {
  Value value;
  value.number_.integer = 1;
  return value;
}

Value Value::large(std::string digits) {
  Value value(std::move(digits));
  value.kind_ = Kind::large;
  return value;
}

Value Value::absent() {
  Value value;
  value.kind_ = Kind::absent;
  return value;
}

Value Value::undefined(std::string name) {
  return undefined(Missing{.owner = {}, .name = std::move(name), .message = {}});
}

Value Value::undefined(Missing why) {
  Value value;
  value.kind_ = Kind::undefined;
  const size_t size = why.owner.size() + why.name.size() + why.message.size();
  value.pointer_ = held(std::move(why), size);
  return value;
}

Value Value::sequence(std::vector<Value> items, Form form) {
  Value value;
  value.kind_ = Kind::sequence;
  int inner = 0;
  for (auto& item : items) inner = std::max(inner, item.depth());
  const size_t size = items.size() * sizeof(Value);
  value.pointer_ = held(Sequence{.items = std::move(items), .form = form, .depth = checked_depth(inner)}, size);
  return value;
}

Value Value::dict(Dict items) {
  Value value;
  value.kind_ = Kind::dict;
  int inner = 0;
  for (auto& [key, item] : items.items) inner = std::max({inner, key.depth(), item.depth()});
  items.depth = checked_depth(inner);
  const size_t size = items.items.size() * sizeof(items.items[0]);
  value.pointer_ = held(std::move(items), size);
  return value;
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<int64_t>();
    case Type::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{INT64_MAX}) return large(std::to_string(json.get<uint64_t>()));
      return json.get<int64_t>();
    case Type::binary:
      return large({json.get_binary().begin(), json.get_binary().end()});
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return Value(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (auto& item : json) items.push_back(from_json(item));
      return sequence(std::move(items));
    }
    case Type::object: {
      Dict dict;
      dict.items.reserve(json.size());
      for (auto& [key, item] : json.items()) dict.items.emplace_back(key, from_json(item));
      return Value::dict(std::move(dict));
    }
    default:
      return {};
  }
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::boolean:
    case Kind::integer:
      return number_.integer != 0;
    case Kind::real:
      return number_.real != 0;
    case Kind::text:
      return !bytes().empty();
    case Kind::sequence:
      return as_sequence().form == Form::generator || !as_sequence().items.empty();
    case Kind::dict:
      return !as_dict().items.empty();
    case Kind::large:
    case Kind::object:
      return true;
    default:
      return false;
  }
}

int Value::depth() const {
  switch (kind_) {
    case Kind::sequence:
      return as_sequence().depth;
    case Kind::dict:
      return as_dict().depth;
    case Kind::object:
      return object().depth;
    default:
      return 0;
  }
}

std::string_view Value::type_name() const {
  switch (kind_) {
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::large:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return safe() ? "Markup" : "str";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return object().type_name();
    case Kind::sequence: {
      constexpr std::string_view names[] = {"list",      "tuple",       "range",     "generator",
                                            "dict_keys", "dict_values", "dict_items"};
      return names[static_cast<size_t>(as_sequence().form)];
    }
    case Kind::none:
      return "NoneType";
    default:
      return "Undefined";
  }
}

Meter& Meter::of_thread() {
  thread_local Meter meter;
  return meter;
}

void hold(size_t bytes) {
  auto& meter = Meter::of_thread();
  const auto all = meter.held + static_cast<int64_t>(bytes);
  if (all > meter.held_most) throw Fault{"the values of the template take too much memory"};
  spend(bytes / bytes_per_step);
  meter.held = all;
}

void release(size_t bytes) { Meter::of_thread().held -= static_cast<int64_t>(bytes); }

void spend(size_t steps) {
  auto& meter = Meter::of_thread();
  meter.steps += static_cast<int64_t>(steps);
  if (meter.steps > meter.steps_most)
    throw Fault{fmt::format("the template ran {} steps without an end", meter.steps_most)};
}

void spend_for(const Value& value) {
  if (value.is_text()) spend(value.bytes().size() / bytes_per_step);
  if (value.is_dict()) spend(value.as_dict().items.size() / 8);
  if (value.is(Kind::sequence)) spend(value.as_sequence().items.size() / 8);
}

std::string Value::why_undefined() const {
  auto& why = *static_cast<const Missing*>(pointer_.get());
  if (!why.message.empty()) return why.message;
  if (why.owner.empty()) return fmt::format("'{}' is undefined", why.name);
  return fmt::format("'{} object' has no attribute '{}'", why.owner, why.name);
}

Object::Object(int depth) : depth(depth) { hold(object_bytes); }
Object::~Object() { release(object_bytes); }

std::optional<Value> Object::attribute(std::string_view) const { return std::nullopt; }

Value Object::call(Interpreter&, Arguments&) { throw Fault{fmt::format("'{}' object is not callable", type_name())}; }

std::optional<Value> Namespace::attribute(std::string_view name) const {
  auto* found = attributes.find(name);
  return found ? std::optional(*found) : std::nullopt;
}

const Value* Dict::find(std::string_view key) const {
  spend(1 + items.size() / 8);
  for (auto& [name, value] : items)
    if (name.is_text() && name.bytes() == key) return &value;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_text()) return find(std::string_view(key.bytes()));
  spend(1 + items.size() / 8);
  for (auto& [name, value] : items)
    if (equal(name, key)) return &value;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  check_hashable(key);
  if (auto* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);
  } else {
    items.emplace_back(std::move(key), std::move(value));
  }
}

Items::Items(const Value& value) : keep_(value) {
  switch (value.kind()) {
    case Kind::undefined:
      return;
    case Kind::text:
      for_each_code_point(value.bytes(), [&](std::string_view point) { own_.emplace_back(point); });
      hold(own_.size() * sizeof(Value));
      return;
    case Kind::dict:
      for (auto& [key, item] : value.as_dict().items) own_.push_back(key);
      hold(own_.size() * sizeof(Value));
      return;
    case Kind::sequence: {
      auto& sequence = value.as_sequence();
      view_ = sequence.items;
      if (sequence.form != Form::generator) return;
      view_ = view_.subspan(sequence.next);
      sequence.next = sequence.items.size();
      return;
    }
    default:
      throw Fault{fmt::format("'{}' object is not iterable", value.type_name())};
  }
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_dict() || value.is(Kind::sequence);
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.integer() == b.integer();
    return a.real() == b.real();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::text:
    case Kind::large:
      spend(1 + std::min(a.bytes().size(), b.bytes().size()) / bytes_per_step);
      return a.bytes() == b.bytes();
    case Kind::dict:
      return a.identity() == b.identity() || equal_dicts(a.as_dict(), b.as_dict());
    case Kind::sequence: {
      if (a.identity() == b.identity()) return true;
      Form form = a.as_sequence().form;
      return form == b.as_sequence().form && form != Form::generator && form != Form::values &&
             equal_items(a.as_sequence().items, b.as_sequence().items);
    }
    case Kind::object:
      return a.identity() == b.identity();
    default:
      return true;
  }
}

size_t hash_of(const Value& key) {
  if (key.is_number()) return std::hash<double>()(key.real());
  if (key.is_text() || key.is(Kind::large)) return std::hash<std::string>()(key.bytes());
  size_t hash = static_cast<size_t>(key.kind());
  if (key.is_sequence(Form::tuple))
    for (auto& item : key.as_sequence().items) hash = hash * 31 + hash_of(item);
  return hash;
}

bool less(const Value& a, const Value& b, std::string_view sign) {
  spend(1);
  if (a.is_whole() && b.is_whole()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.real() < b.real();
  if (a.is_text() && b.is_text()) {
    spend(std::min(a.bytes().size(), b.bytes().size()) / bytes_per_step);
    return a.bytes() < b.bytes();  // UTF-8 keeps the order of code points
  }
  for (auto* value : {&a, &b})
    if (value->is_undefined()) throw Fault{value->why_undefined()};
  if (a.is(Kind::sequence) && b.is(Kind::sequence) && a.as_sequence().form == b.as_sequence().form &&
      is_ordered_form(a.as_sequence().form)) {
    auto &left = a.as_sequence().items, &right = b.as_sequence().items;
    for (size_t i = 0; i < left.size() && i < right.size(); ++i)
      if (!equal(left[i], right[i])) return less(left[i], right[i], sign);
    return left.size() < right.size();
  }
  throw Fault{fmt::format("'{}' not supported between instances of '{}' and '{}'", sign, a.type_name(), b.type_name())};
}

bool identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::sequence:
    case Kind::dict:
    case Kind::object:
    case Kind::undefined:
      return a.identity() == b.identity();
    default:
      return equal(a, b);
  }
}

void check_hashable(const Value& key) {
  if (key.is_dict() || key.is_sequence(Form::list)) throw Fault{fmt::format("unhashable type: '{}'", key.type_name())};
  if (key.is_sequence(Form::tuple))
    for (auto& item : key.as_sequence().items) check_hashable(item);
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return value.as_text().ascii ? static_cast<int64_t>(value.bytes().size()) : count_code_points(value.bytes());
    case Kind::dict:
      return static_cast<int64_t>(value.as_dict().items.size());
    case Kind::sequence:
      if (value.as_sequence().form != Form::generator) return static_cast<int64_t>(value.as_sequence().items.size());
      [[fallthrough]];
    default:
      throw Fault{fmt::format("object of type '{}' has no len()", value.type_name())};
  }
}

}  // namespace runner::jinja
