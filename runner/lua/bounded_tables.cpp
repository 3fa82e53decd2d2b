// Replaces the table library by functions that count every iteration as an instruction: __len can return any length,
// and Lua's debug hook does not run inside C functions.
#include <climits>

#include "runner/lua/machine.hpp"

namespace runner::lua {

namespace {

constexpr lua_Integer unpack_max = 200'000;

lua_Integer length_of(lua_State* lua, int index) {
  luaL_checktype(lua, index, LUA_TTABLE);
  return luaL_len(lua, index);
}

int table_insert(lua_State* lua) {
  auto& machine = Machine::of(lua);
  lua_Integer end = static_cast<lua_Integer>(static_cast<lua_Unsigned>(length_of(lua, 1)) + 1);
  int count = lua_gettop(lua);
  if (count != 2 && count != 3) return luaL_error(lua, "wrong number of arguments to 'insert'");
  lua_Integer at = count == 2 ? end : luaL_checkinteger(lua, 2);
  luaL_argcheck(lua, static_cast<lua_Unsigned>(at) - 1u < static_cast<lua_Unsigned>(end), 2, "position out of bounds");
  for (lua_Integer i = end; i > at; --i) {
    machine.charge(lua, 1);
    lua_geti(lua, 1, i - 1);
    lua_seti(lua, 1, i);
  }
  lua_seti(lua, 1, at);
  return 0;
}

int table_remove(lua_State* lua) {
  auto& machine = Machine::of(lua);
  lua_Integer size = length_of(lua, 1), at = luaL_optinteger(lua, 2, size);
  if (at != size)
    luaL_argcheck(lua, static_cast<lua_Unsigned>(at) - 1u <= static_cast<lua_Unsigned>(size), 2,
                  "position out of bounds");
  lua_geti(lua, 1, at);
  for (; at < size; ++at) {
    machine.charge(lua, 1);
    lua_geti(lua, 1, at + 1);
    lua_seti(lua, 1, at);
  }
  lua_pushnil(lua);
  lua_seti(lua, 1, at);
  return 1;
}

int table_move(lua_State* lua) {
  auto& machine = Machine::of(lua);
  lua_Integer from = luaL_checkinteger(lua, 2), end = luaL_checkinteger(lua, 3), to = luaL_checkinteger(lua, 4);
  int target = lua_isnoneornil(lua, 5) ? 1 : 5;
  luaL_checktype(lua, 1, LUA_TTABLE);
  luaL_checktype(lua, target, LUA_TTABLE);
  if (end >= from) {
    luaL_argcheck(lua, from > 0 || end < LUA_MAXINTEGER + from, 3, "too many elements to move");
    lua_Integer count = end - from + 1;
    luaL_argcheck(lua, to <= LUA_MAXINTEGER - count + 1, 4, "destination wrap around");
    bool forward = to > end || to <= from || (target != 1 && !lua_compare(lua, 1, target, LUA_OPEQ));
    for (lua_Integer n = 0; n < count; ++n) {
      lua_Integer i = forward ? n : count - 1 - n;
      machine.charge(lua, 1);
      lua_geti(lua, 1, from + i);
      lua_seti(lua, target, to + i);
    }
  }
  lua_pushvalue(lua, target);
  return 1;
}

void add_item(lua_State* lua, luaL_Buffer* buffer, lua_Integer index) {
  lua_geti(lua, 1, index);
  if (!lua_isstring(lua, -1))
    luaL_error(lua, "invalid value (at index %I) in table for 'concat'", static_cast<LUAI_UACINT>(index));
  luaL_addvalue(buffer);
}

int table_concat(lua_State* lua) {
  auto& machine = Machine::of(lua);
  lua_Integer size = length_of(lua, 1);
  size_t separator_size;
  const char* separator = luaL_optlstring(lua, 2, "", &separator_size);
  lua_Integer from = luaL_optinteger(lua, 3, 1), end = luaL_optinteger(lua, 4, size);
  luaL_Buffer buffer;
  luaL_buffinit(lua, &buffer);
  for (; from < end; ++from) {
    machine.charge(lua, 1 + separator_size / 64);
    add_item(lua, &buffer, from);
    luaL_addlstring(&buffer, separator, separator_size);
  }
  if (from == end) add_item(lua, &buffer, from);
  luaL_pushresult(&buffer);
  return 1;
}

int table_unpack(lua_State* lua) {
  auto& machine = Machine::of(lua);
  lua_Integer from = luaL_optinteger(lua, 2, 1);
  lua_Integer end = lua_isnoneornil(lua, 3) ? luaL_len(lua, 1) : luaL_checkinteger(lua, 3);
  if (from > end) return 0;
  auto count = static_cast<lua_Unsigned>(end) - static_cast<lua_Unsigned>(from);
  if (count >= static_cast<lua_Unsigned>(unpack_max) || !lua_checkstack(lua, static_cast<int>(count) + 1))
    return luaL_error(lua, "too many results to unpack");
  machine.charge(lua, static_cast<size_t>(count));
  for (; from < end; ++from) lua_geti(lua, 1, from);
  lua_geti(lua, 1, end);
  return static_cast<int>(count) + 1;
}

// ---- sort: heapsort, because no comparison function makes it quadratic

bool less(lua_State* lua, int a, int b) {
  if (lua_isnil(lua, 2)) return lua_compare(lua, a, b, LUA_OPLT) != 0;
  lua_pushvalue(lua, 2);
  lua_pushvalue(lua, a - 1);
  lua_pushvalue(lua, b - 2);
  lua_call(lua, 2, 1);
  bool result = lua_toboolean(lua, -1) != 0;
  lua_pop(lua, 1);
  return result;
}

/// Inserts the value on top of the stack into the heap below `root`.
void sift(lua_State* lua, Machine& machine, lua_Integer root, lua_Integer end) {
  for (lua_Integer child; (child = 2 * root) <= end; root = child) {
    machine.charge(lua, 3);
    lua_geti(lua, 1, child);
    if (child < end) {
      lua_geti(lua, 1, child + 1);
      if (less(lua, -2, -1)) {
        lua_remove(lua, -2);
        ++child;
      } else {
        lua_pop(lua, 1);
      }
    }
    if (!less(lua, -2, -1)) {
      lua_pop(lua, 1);
      break;
    }
    lua_seti(lua, 1, root);
  }
  lua_seti(lua, 1, root);
}

int table_sort(lua_State* lua) {
  auto& machine = Machine::of(lua);
  lua_Integer size = length_of(lua, 1);
  luaL_argcheck(lua, size < INT_MAX, 1, "array too big");
  if (!lua_isnoneornil(lua, 2)) luaL_checktype(lua, 2, LUA_TFUNCTION);
  lua_settop(lua, 2);
  for (lua_Integer root = size / 2; root >= 1; --root) {
    lua_geti(lua, 1, root);
    sift(lua, machine, root, size);
  }
  for (lua_Integer end = size; end >= 2; --end) {
    lua_geti(lua, 1, end);
    lua_geti(lua, 1, 1);
    lua_seti(lua, 1, end);
    sift(lua, machine, 1, end - 1);
  }
  return 0;
}

}  // namespace

void add_bounded_tables(lua_State* lua) {
  const luaL_Reg functions[] = {{"insert", table_insert}, {"remove", table_remove}, {"move", table_move},
                                {"concat", table_concat}, {"unpack", table_unpack}, {"sort", table_sort},
                                {nullptr, nullptr}};
  luaL_setfuncs(lua, functions, 0);
}

}  // namespace runner::lua
