#include "runner/lua/value.hpp"

#include "runner/lua/machine.hpp"

namespace runner::lua {

using nlohmann::json;

std::string kind_at(lua_State* lua, int index) {
  switch (lua_type(lua, index)) {
    case LUA_TNONE:
      return "nothing";
    case LUA_TNIL:
      return "nil";
    case LUA_TBOOLEAN:
      return lua_toboolean(lua, index) ? "true" : "false";
    case LUA_TUSERDATA:
      if (auto* object = object_at(lua, index)) return "a " + (*object)->kind().name();
      return "a userdata";
    default:
      return std::string("a ") + lua_typename(lua, lua_type(lua, index));
  }
}

std::vector<std::string> Class::members() const {
  std::vector<std::string> names;
  for (const auto& [method, body] : methods_) names.push_back(method);
  for (const auto& [property, read] : properties_) names.push_back(property);
  return names;
}

std::string kind_of(const Value& value) {
  if (value.object) return "a " + value.object->kind().name();
  if (value.reference) return value.reference.is_function() ? "a function" : "a table";
  if (value.plain.is_null()) return "nil";
  if (value.plain.is_boolean()) return value.plain.get<bool>() ? "true" : "false";
  if (value.plain.is_number()) return "a number";
  return value.plain.is_string() ? "a string" : "a table";
}

void Object::require_valid() const {
  if (!payload_) throw ScriptMistake(fmt::format("this {} is not valid any more: {}", kind_->name(), why_));
}

void Arguments::wrong(int index, const std::string& must_be) const {
  if (index == 0)
    throw ScriptMistake(fmt::format("{0}: call it with a colon, object:{0}(...), on {2}, not on {1}", *function_,
                                    kind_at(lua_, at(index)), must_be));
  throw ScriptMistake(
      fmt::format("{}: argument {} must be {}, not {}", *function_, index, must_be, kind_at(lua_, at(index))));
}

bool Arguments::has(int index) const { return index <= count_ && lua_type(lua_, at(index)) > LUA_TNIL; }

double Arguments::number(int index) const {
  if (index > count_ || lua_type(lua_, at(index)) != LUA_TNUMBER) wrong(index, "a number");
  return lua_tonumber(lua_, at(index));
}

int64_t Arguments::integer(int index) const {
  double as_number = number(index);
  int whole = 0;
  auto value = lua_tointegerx(lua_, at(index), &whole);
  if (!whole)
    throw ScriptMistake(fmt::format("{}: argument {} must be an integer, not {}", *function_, index, as_number));
  return value;
}

std::string Arguments::text(int index) const {
  if (index > count_ || lua_type(lua_, at(index)) != LUA_TSTRING) wrong(index, "a string");
  size_t size;
  const char* text = lua_tolstring(lua_, at(index), &size);
  return {text, size};
}

json Arguments::table(int index, Strings strings) const {
  if (index > count_ || lua_type(lua_, at(index)) != LUA_TTABLE) wrong(index, "a table");
  return json_at(lua_, at(index), fmt::format("{}: argument {}", *function_, index), nullptr, strings);
}

Reference Arguments::function(int index) const {
  if (index > count_ || lua_type(lua_, at(index)) != LUA_TFUNCTION) wrong(index, "a function");
  return read_value(lua_, at(index)).reference;
}

std::shared_ptr<Object> Arguments::object(int index, const Class& kind) const {
  auto* handle = index <= count_ ? object_at(lua_, at(index)) : nullptr;
  if (!handle || &(*handle)->kind() != &kind) wrong(index, "a " + kind.name());
  (*handle)->require_valid();
  return *handle;
}

Value Arguments::value(int index) const { return index <= count_ ? read_value(lua_, at(index)) : Value(); }

void Arguments::at_most(int count) const {
  if (count_ > count)
    throw ScriptMistake(fmt::format("{}: takes {} argument{}, not {}", *function_,
                                    count == 0 ? "no" : "at most " + std::to_string(count), count == 1 ? "" : "s",
                                    count_));
}

}  // namespace runner::lua
