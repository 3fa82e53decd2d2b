// pcall, xpcall and coroutines that do not catch errors of a spent budget.
#include "runner/lua/machine.hpp"

namespace runner::lua {

namespace {

int finish_pcall(lua_State* lua, int status, lua_KContext hidden) {
  Machine::of(lua).raise_if_spent(lua);
  if (status != LUA_OK && status != LUA_YIELD) {
    Machine::of(lua).charge(lua, 100);  // the cost of an error
    lua_pushboolean(lua, 0);
    lua_pushvalue(lua, -2);
    size_t size = 0;
    const char* text = lua_type(lua, -1) == LUA_TSTRING ? lua_tolstring(lua, -1, &size) : nullptr;
    constexpr auto no_place = Machine::no_place;
    if (text && std::string_view(text, size).starts_with(no_place)) {
      lua_pushlstring(lua, text + no_place.size(), size - no_place.size());
      lua_replace(lua, -2);
    }
    return 2;
  }
  return lua_gettop(lua) - static_cast<int>(hidden);
}

int guarded_pcall(lua_State* lua) {
  luaL_checkany(lua, 1);
  lua_pushboolean(lua, 1);
  lua_insert(lua, 1);
  return finish_pcall(lua, lua_pcallk(lua, lua_gettop(lua) - 2, LUA_MULTRET, 0, 0, finish_pcall), 0);
}

/// For an error raised by the debug hook, Lua calls message handlers with hooks disabled. The script's handler must not
/// run then, because nothing would limit it.
int guarded_handler(lua_State* lua) {
  if (Machine::of(lua).spent != Spent::nothing) return 1;
  lua_pushvalue(lua, lua_upvalueindex(1));
  lua_insert(lua, 1);
  lua_call(lua, lua_gettop(lua) - 1, 1);
  return 1;
}

int guarded_xpcall(lua_State* lua) {
  int count = lua_gettop(lua);
  luaL_checktype(lua, 2, LUA_TFUNCTION);
  lua_pushvalue(lua, 2);
  lua_pushcclosure(lua, guarded_handler, 1);
  lua_replace(lua, 2);
  lua_pushboolean(lua, 1);
  lua_pushvalue(lua, 1);
  lua_rotate(lua, 3, 2);
  return finish_pcall(lua, lua_pcallk(lua, count - 2, LUA_MULTRET, 2, 2, finish_pcall), 2);
}

lua_State* coroutine_at(lua_State* lua, int index) {
  lua_State* thread = lua_tothread(lua, index);
  luaL_argexpected(lua, thread, index, "coroutine");
  return thread;
}

/// Returns the number of results on `lua`'s stack, or -1 with the error value on it.
int resume(lua_State* lua, lua_State* thread, int arguments) {
  auto& machine = Machine::of(lua);
  if (!lua_checkstack(thread, arguments)) {
    lua_pushliteral(lua, "too many arguments to resume");
    return -1;
  }
  lua_xmove(lua, thread, arguments);
  int results = 0;
  machine.running = thread;
  int status = lua_resume(thread, lua, arguments, &results);
  machine.running = lua;
  bool failed = status != LUA_OK && status != LUA_YIELD;
  if (machine.spent != Spent::nothing) {
    if (failed && thread != machine.main && lua_status(thread) != LUA_OK) Machine::poison(thread);
    machine.raise_spent(lua);
  }
  if (failed) {
    lua_xmove(thread, lua, 1);
    return -1;
  }
  if (!lua_checkstack(lua, results + 1)) {
    lua_pop(thread, results);
    lua_pushliteral(lua, "too many results to resume");
    return -1;
  }
  lua_xmove(thread, lua, results);
  return results;
}

int guarded_resume(lua_State* lua) {
  lua_State* thread = coroutine_at(lua, 1);
  int results = resume(lua, thread, lua_gettop(lua) - 1);
  lua_pushboolean(lua, results >= 0);
  lua_insert(lua, results >= 0 ? -(results + 1) : -2);
  return results >= 0 ? results + 1 : 2;
}

/// Ends a thread and runs its pending __close functions.
int reset(lua_State* lua, lua_State* thread) {
  auto& machine = Machine::of(lua);
  machine.running = thread;
  int status = lua_resetthread(thread);
  machine.running = lua;
  machine.raise_if_spent(lua);
  return status;
}

int call_wrapped(lua_State* lua) {
  lua_State* thread = coroutine_at(lua, lua_upvalueindex(1));
  int results = resume(lua, thread, lua_gettop(lua));
  if (results >= 0) return results;
  int status = lua_status(thread);
  if (status != LUA_OK && status != LUA_YIELD && !Machine::poisoned(thread)) {
    lua_pop(lua, 1);
    status = reset(lua, thread);
    lua_xmove(thread, lua, 1);
  }
  if (status != LUA_ERRMEM && lua_type(lua, -1) == LUA_TSTRING) {
    luaL_where(lua, 1);
    lua_insert(lua, -2);
    lua_concat(lua, 2);
  }
  return lua_error(lua);
}

int guarded_wrap(lua_State* lua) {
  luaL_checktype(lua, 1, LUA_TFUNCTION);
  lua_State* thread = lua_newthread(lua);
  lua_pushvalue(lua, 1);
  lua_xmove(lua, thread, 1);
  lua_pushcclosure(lua, call_wrapped, 1);
  return 1;
}

int guarded_close(lua_State* lua) {
  lua_State* thread = coroutine_at(lua, 1);
  if (Machine::poisoned(thread)) {
    lua_pushboolean(lua, 0);
    lua_pushliteral(lua, "it was stopped when its budget was spent");
    return 2;
  }
  lua_Debug frame;
  if (thread == lua || (lua_status(thread) == LUA_OK && lua_getstack(thread, 0, &frame)))
    return luaL_error(lua, "cannot close a running coroutine");
  if (reset(lua, thread) == LUA_OK) {
    lua_pushboolean(lua, 1);
    return 1;
  }
  lua_pushboolean(lua, 0);
  lua_xmove(thread, lua, 1);
  return 2;
}

}  // namespace

void add_guarded_calls(lua_State* lua) {
  const luaL_Reg functions[] = {{"pcall", guarded_pcall}, {"xpcall", guarded_xpcall}, {"resume", guarded_resume},
                                {"wrap", guarded_wrap},   {"close", guarded_close},   {nullptr, nullptr}};
  luaL_setfuncs(lua, functions, 0);
}

}  // namespace runner::lua
