// Replaces string and utf8 functions by versions whose work counts as instructions; `rep` is reimplemented.
#include <cstring>

#include "runner/lua/machine.hpp"

namespace runner::lua {

namespace {

int charged(lua_State* lua) {
  size_t bytes = 64;
  for (int i = 1; i <= lua_gettop(lua); ++i)
    if (lua_type(lua, i) == LUA_TSTRING) bytes += lua_rawlen(lua, i);
  Machine::of(lua).charge(lua, bytes / Machine::bytes_per_instruction);
  return lua_tocfunction(lua, lua_upvalueindex(1))(lua);
}

int string_rep(lua_State* lua) {
  size_t size, separator_size;
  const char* text = luaL_checklstring(lua, 1, &size);
  lua_Integer count = luaL_checkinteger(lua, 2);
  const char* separator = luaL_optlstring(lua, 3, "", &separator_size);
  auto& machine = Machine::of(lua);
  if (count <= 0 || size + separator_size == 0) {
    lua_pushliteral(lua, "");
    return 1;
  }
  if (static_cast<lua_Unsigned>(count) > machine.string_limit / (size + separator_size) + 1)
    return luaL_error(lua, "resulting string too large");
  size_t total = static_cast<size_t>(count) * size + static_cast<size_t>(count - 1) * separator_size;
  machine.charge(lua, total / Machine::bytes_per_instruction);
  luaL_Buffer buffer;
  char* to = luaL_buffinitsize(lua, &buffer, total);
  for (lua_Integer i = 0; i < count; ++i) {
    if (i > 0) {
      std::memcpy(to, separator, separator_size);
      to += separator_size;
    }
    std::memcpy(to, text, size);
    to += size;
  }
  luaL_pushresultsize(&buffer, total);
  return 1;
}

}  // namespace

void charge_functions(lua_State* lua, const char* const* names) {
  for (; *names; ++names) {
    lua_getfield(lua, -1, *names);
    lua_pushcclosure(lua, charged, 1);
    lua_setfield(lua, -2, *names);
  }
}

void add_bounded_strings(lua_State* lua) {
  static const char* const names[] = {"byte",    "char", "format", "lower", "pack", "packsize",
                                      "reverse", "sub",  "unpack", "upper", nullptr};
  charge_functions(lua, names);
  lua_pushcfunction(lua, string_rep);
  lua_setfield(lua, -2, "rep");
  lua_pushnil(lua);
  lua_setfield(lua, -2, "dump");
}

}  // namespace runner::lua
