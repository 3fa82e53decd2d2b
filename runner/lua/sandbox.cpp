// The environment of scripts: read-only libraries without functions that access the system or run without limits.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runner/base/text.hpp"
#include "runner/lua/compiled_library.hpp"
#include "runner/lua/machine.hpp"

namespace runner::lua {

namespace {

const char libraries_key = 0;  ///< registry: {library name = read-only view}
const char base_key = 0;       ///< registry: {name = base function}
const char seed_key = 0;       ///< registry: Lua's math.randomseed

int refuse_outside(lua_State* lua) {
  const char* library = lua_tostring(lua, lua_upvalueindex(1));
  const char* name = lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : "?";
  return luaL_error(lua, "%s.%s is not available in the sandbox; `trusted = true` in [hooks] allows it", library, name);
}

int refuse_function(lua_State* lua) {
  return luaL_error(lua, "%s is not available in the sandbox; `trusted = true` in [hooks] allows it",
                    lua_tostring(lua, lua_upvalueindex(1)));
}

bool is_protected(lua_State* lua, int index) {
  if (luaL_getmetafield(lua, index, "__metatable") == LUA_TNIL) return false;
  lua_pop(lua, 1);
  return true;
}

int sandboxed_setmetatable(lua_State* lua) {
  luaL_checktype(lua, 1, LUA_TTABLE);
  int type = lua_type(lua, 2);
  luaL_argexpected(lua, type == LUA_TNIL || type == LUA_TTABLE, 2, "nil or table");
  if (is_protected(lua, 1)) return luaL_error(lua, "cannot change a protected metatable");
  if (type == LUA_TTABLE) {
    lua_pushliteral(lua, "__gc");
    if (lua_rawget(lua, 2) != LUA_TNIL)
      return luaL_error(lua, "metatables with __gc are not available in the sandbox; use __close");
  }
  lua_settop(lua, 2);
  lua_setmetatable(lua, 1);
  return 1;
}

int sandboxed_rawset(lua_State* lua) {
  luaL_checktype(lua, 1, LUA_TTABLE);
  luaL_checkany(lua, 2);
  luaL_checkany(lua, 3);
  if (is_protected(lua, 1)) return luaL_error(lua, "this table is read-only");
  lua_settop(lua, 3);
  lua_rawset(lua, 1);
  return 1;
}

int sandboxed_collectgarbage(lua_State* lua) {
  const char* option = luaL_optstring(lua, 1, "collect");
  if (std::strcmp(option, "count") != 0)
    return luaL_error(lua, "collectgarbage(\"%s\") is not available; only \"count\" is", option);
  lua_pushnumber(lua, lua_gc(lua, LUA_GCCOUNT) + lua_gc(lua, LUA_GCCOUNTB) / 1024.0);
  return 1;
}

/// Reads all pieces of a reader function into one string on top of the stack.
void read_pieces(lua_State* lua) {
  auto& machine = Machine::of(lua);
  size_t total = 0;
  luaL_Buffer buffer;
  luaL_buffinit(lua, &buffer);
  for (;;) {
    lua_pushvalue(lua, 1);
    lua_call(lua, 0, 1);
    if (lua_isnil(lua, -1)) break;
    if (lua_type(lua, -1) != LUA_TSTRING) luaL_error(lua, "reader function must return a string");
    size_t size = lua_rawlen(lua, -1);
    if (size == 0) break;
    machine.charge(lua, 4);
    if ((total += size) > machine.string_limit) luaL_error(lua, "chunk too long");
    luaL_addvalue(&buffer);
  }
  lua_pop(lua, 1);
  luaL_pushresult(&buffer);
}

/// Upvalue: the environment of the file that contains the call.
int sandboxed_load(lua_State* lua) {
  bool own_environment = lua_gettop(lua) >= 4;
  if (lua_type(lua, 1) != LUA_TSTRING) luaL_checktype(lua, 1, LUA_TFUNCTION);
  const char* name = luaL_optstring(lua, 2, "=(load)");
  const char* mode = luaL_optstring(lua, 3, "t");
  if (!std::strchr(mode, 't')) return luaL_error(lua, "load: mode \"%s\" is bytecode; only text is loaded", mode);
  lua_settop(lua, 4);
  if (lua_type(lua, 1) == LUA_TFUNCTION)
    read_pieces(lua);
  else
    lua_pushvalue(lua, 1);
  size_t size;
  const char* text = lua_tolstring(lua, 5, &size);
  Machine::of(lua).charge(lua, 4 * size);
  if (luaL_loadbufferx(lua, text, size, name, "t") != LUA_OK) {
    lua_pushnil(lua);
    lua_insert(lua, -2);
    return 2;
  }
  lua_pushvalue(lua, own_environment ? 4 : lua_upvalueindex(1));
  lua_setupvalue(lua, -2, 1);
  return 1;
}

/// Accepts integers only. Without an argument, Lua would seed from the clock.
int seeded_randomseed(lua_State* lua) {
  luaL_checkinteger(lua, 1);
  lua_settop(lua, 2);
  lua_pushvalue(lua, lua_upvalueindex(1));
  lua_insert(lua, 1);
  lua_call(lua, 2, 0);
  return 0;
}

void hand_out(Machine& machine, const char* text, size_t size) noexcept {
  if (!machine.options.print) return;
  machine.pause_clock();
  try {
    machine.options.print(std::string_view(text, size));
  } catch (...) {
    machine.host_failed();
  }
  machine.resume_clock();
}

int sandboxed_print(lua_State* lua) {
  int count = lua_gettop(lua);
  luaL_Buffer buffer;
  luaL_buffinit(lua, &buffer);
  for (int i = 1; i <= count; ++i) {
    if (i > 1) luaL_addchar(&buffer, '\t');
    luaL_tolstring(lua, i, nullptr);
    luaL_addvalue(&buffer);
  }
  luaL_pushresult(&buffer);
  size_t size;
  const char* text = lua_tolstring(lua, -1, &size);
  auto& machine = Machine::of(lua);
  machine.charge(lua, 20 + size / 16);
  hand_out(machine, text, size);
  machine.raise_if_spent(lua);
  return 0;
}

// ---- libraries

/// Replaces the table on top of the stack by a new one that has only the named fields.
void keep_only(lua_State* lua, const char* const* names) {
  lua_newtable(lua);
  for (; *names; ++names) {
    lua_getfield(lua, -2, *names);
    lua_setfield(lua, -2, *names);
  }
  lua_remove(lua, -2);
}

/// Access to a missing name raises an error with the reason, instead of returning nil.
void explain_missing(lua_State* lua, const char* library) {
  lua_newtable(lua);
  lua_pushstring(lua, library);
  lua_pushcclosure(lua, refuse_outside, 1);
  lua_setfield(lua, -2, "__index");
  lua_setmetatable(lua, -2);
}

/// Moves the library on top of the stack into the table of libraries below it.
void keep_library(lua_State* lua, const char* name, bool trusted) {
  if (!trusted) make_read_only(lua);
  lua_setfield(lua, -2, name);
}

// ---- functions whose work counts as instructions

/// Calls the C function in its upvalue. The lengths of string arguments count.
int charged(lua_State* lua) {
  size_t bytes = 64;
  for (int i = 1; i <= lua_gettop(lua); ++i)
    if (lua_type(lua, i) == LUA_TSTRING) bytes += lua_rawlen(lua, i);
  Machine::of(lua).charge(lua, bytes / Machine::bytes_per_instruction);
  return lua_tocfunction(lua, lua_upvalueindex(1))(lua);
}

/// Wraps the named C functions (without upvalues) of the table on top of the stack.
void charge_functions(lua_State* lua, const char* const* names) {
  for (; *names; ++names) {
    lua_getfield(lua, -1, *names);
    lua_pushcclosure(lua, charged, 1);
    lua_setfield(lua, -2, *names);
  }
}

int charge_steps(lua_State* lua) {
  constexpr lua_Number most = 1e15;
  Machine::of(lua).charge(lua, static_cast<size_t>(std::clamp(lua_tonumber(lua, 1), 0.0, most)));
  return 0;
}

/// Runs library.lua on the libraries `string` and `table`, with the base functions as globals.
void replace_slow_functions(lua_State* lua) {
  static const char* const strings[] = {"byte",    "char", "format", "lower", "pack", "packsize",
                                        "reverse", "sub",  "unpack", "upper", nullptr};
  luaL_requiref(lua, LUA_STRLIBNAME, luaopen_string, 0);
  luaL_requiref(lua, LUA_TABLIBNAME, luaopen_table, 0);
  const auto& library = compiled_library();
  if (luaL_loadbufferx(lua, library.data(), library.size(), "=library", "b") != LUA_OK) lua_error(lua);
  lua_rawgetp(lua, LUA_REGISTRYINDEX, &base_key);
  lua_setupvalue(lua, -2, 1);
  lua_pushvalue(lua, -3);  // string, table, function, string
  lua_pushvalue(lua, -3);
  lua_pushcfunction(lua, charge_steps);
  lua_pushinteger(lua, static_cast<lua_Integer>(Machine::of(lua).string_limit));
  lua_call(lua, 4, 0);
  lua_pop(lua, 1);
  charge_functions(lua, strings);
  lua_pop(lua, 1);
}

void open_string(lua_State* lua, bool trusted) {
  luaL_requiref(lua, LUA_STRLIBNAME, luaopen_string, 0);
  if (!trusted) {  // ("x"):upper() uses the metatable of strings
    lua_pushliteral(lua, "");
    lua_getmetatable(lua, -1);
    lua_pushboolean(lua, 0);
    lua_setfield(lua, -2, "__metatable");
    lua_pop(lua, 2);
  }
  keep_library(lua, LUA_STRLIBNAME, trusted);
}

void set_seed(lua_State* lua, uint64_t seed) {
  lua_rawgetp(lua, LUA_REGISTRYINDEX, &seed_key);
  lua_pushinteger(lua, static_cast<lua_Integer>(seed));
  lua_pushinteger(lua, 0);
  lua_call(lua, 2, 0);
}

void open_math(lua_State* lua, bool trusted) {
  luaL_requiref(lua, LUA_MATHLIBNAME, luaopen_math, 0);
  lua_getfield(lua, -1, "randomseed");
  lua_pushvalue(lua, -1);
  lua_rawsetp(lua, LUA_REGISTRYINDEX, &seed_key);
  set_seed(lua, Machine::of(lua).options.seed);
  lua_pushcclosure(lua, seeded_randomseed, 1);
  lua_setfield(lua, -2, "randomseed");
  keep_library(lua, LUA_MATHLIBNAME, trusted);
}

/// os.execute, but Lua's own one makes the whole process ignore Ctrl-C while the command runs.
int execute_command(lua_State* lua) {
  const char* command = luaL_optstring(lua, 1, nullptr);
  if (!command) {
    lua_pushboolean(lua, 1);  // there is a shell
    return 1;
  }
  const char* arguments[] = {"sh", "-c", command, nullptr};
  pid_t pid = 0;
  int status = -1;
  errno = ::posix_spawn(&pid, "/bin/sh", nullptr, nullptr, const_cast<char* const*>(arguments), environ);
  if (errno == 0)
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  return luaL_execresult(lua, status);
}

void open_system(lua_State* lua, bool trusted) {
  static const char* const of_os[] = {"clock", "date", "difftime", "time", nullptr};
  static const char* const of_debug[] = {"traceback", nullptr};
  static const char* const slow[] = {"date", nullptr};
  luaL_requiref(lua, LUA_OSLIBNAME, luaopen_os, 0);
  if (trusted) {
    lua_pushcfunction(lua, execute_command);
    lua_setfield(lua, -2, "execute");
  } else {
    charge_functions(lua, slow);
    keep_only(lua, of_os);
    explain_missing(lua, LUA_OSLIBNAME);
  }
  keep_library(lua, LUA_OSLIBNAME, trusted);
  luaL_requiref(lua, LUA_DBLIBNAME, luaopen_debug, 0);
  if (!trusted) {
    keep_only(lua, of_debug);
    explain_missing(lua, LUA_DBLIBNAME);
  }
  keep_library(lua, LUA_DBLIBNAME, trusted);
  const luaL_Reg outside[] = {{LUA_IOLIBNAME, luaopen_io}, {LUA_LOADLIBNAME, luaopen_package}};
  for (auto [name, open] : outside) {
    if (trusted) {
      luaL_requiref(lua, name, open, 0);
    } else {
      lua_newtable(lua);
      explain_missing(lua, name);
    }
    keep_library(lua, name, trusted);
  }
}

void open_base(lua_State* lua, bool trusted) {
  static const char* const names[] = {"assert",   "error",    "getmetatable", "ipairs",   "next",
                                      "pairs",    "rawequal", "rawget",       "rawlen",   "select",
                                      "tonumber", "tostring", "type",         "_VERSION", nullptr};
  static const char* const slow[] = {"tonumber", nullptr};
  luaL_requiref(lua, LUA_GNAME, luaopen_base, 0);
  charge_functions(lua, slow);
  if (trusted) {
    static const char* const more[] = {"dofile", "loadfile", "rawset", "setmetatable", "collectgarbage", nullptr};
    lua_newtable(lua);
    for (const char* const* list : {names, more})
      for (; *list; ++list) {
        lua_getfield(lua, -2, *list);
        lua_setfield(lua, -2, *list);
      }
    lua_remove(lua, -2);
  } else {
    keep_only(lua, names);
    const luaL_Reg own[] = {{"setmetatable", sandboxed_setmetatable},
                            {"rawset", sandboxed_rawset},
                            {"collectgarbage", sandboxed_collectgarbage},
                            {nullptr, nullptr}};
    luaL_setfuncs(lua, own, 0);
    for (const char* name : {"dofile", "loadfile"}) {
      lua_pushstring(lua, name);
      lua_pushcclosure(lua, refuse_function, 1);
      lua_setfield(lua, -2, name);
    }
  }
  add_guarded_calls(lua);
  lua_pushcfunction(lua, sandboxed_print);
  lua_setfield(lua, -2, "print");
  lua_rawsetp(lua, LUA_REGISTRYINDEX, &base_key);
}

// ---- require

/// The result of `require "name"` in a file in `folder`. Each file runs once per state.
Value require_module(Machine& machine, const std::string& folder, const std::string& asking, const std::string& name) {
  static const char* const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  if (name.empty() || name.find_first_not_of(allowed) != std::string::npos)
    throw ScriptMistake(
        fmt::format("require: \"{}\" is not the name of a file in this folder (letters, digits, _ and -)", name));
  fs::path path = fs::path(folder) / (name + ".lua");
  if (folder.empty() || !fs::exists(path)) {
    std::vector<std::string> beside;
    std::error_code ignored;
    if (!folder.empty())
      for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().extension() == ".lua") beside.push_back(entry.path().stem().string());
    auto near = nearest(name, beside);
    throw ScriptMistake(fmt::format("require: there is no {}.lua in the folder of this file{}", name,
                                    near ? "; did you mean \"" + *near + "\"?" : ""));
  }
  auto [found, is_new] = machine.modules.try_emplace(path.string());
  if (!is_new) {
    if (found->second.is_nil()) throw ScriptMistake(fmt::format("require: {}.lua requires itself", name));
    return found->second;
  }
  try {
    auto shown = (fs::path(asking).parent_path() / (name + ".lua")).string();
    Value value = run_text(machine, read_file(path), shown, folder, {});
    machine.modules[path.string()] = value.is_nil() ? Value(true) : value;
    return machine.modules[path.string()];
  } catch (...) {
    machine.modules.erase(path.string());
    throw;
  }
}

const Registered* add_require(Machine& machine, const char* folder, const char* name) {
  auto body = [&machine, folder = std::string(folder), asking = std::string(name)](const Arguments& arguments) {
    return require_module(machine, folder, asking, arguments.text(1));
  };
  return machine.add("require", body, false);
}

}  // namespace

void open_libraries(lua_State* lua) {
  bool trusted = Machine::of(lua).options.trusted;
  open_base(lua, trusted);
  replace_slow_functions(lua);
  lua_newtable(lua);
  open_string(lua, trusted);
  open_math(lua, trusted);
  luaL_requiref(lua, LUA_TABLIBNAME, luaopen_table, 0);
  keep_library(lua, LUA_TABLIBNAME, trusted);
  static const char* const of_utf8[] = {"char", "codepoint", "len", "offset", nullptr};
  luaL_requiref(lua, LUA_UTF8LIBNAME, luaopen_utf8, 0);
  charge_functions(lua, of_utf8);
  keep_library(lua, LUA_UTF8LIBNAME, trusted);
  luaL_requiref(lua, LUA_COLIBNAME, luaopen_coroutine, 0);
  add_guarded_coroutines(lua);
  keep_library(lua, LUA_COLIBNAME, trusted);
  open_system(lua, trusted);
  lua_rawsetp(lua, LUA_REGISTRYINDEX, &libraries_key);
}

int seed_random(lua_State* lua) {
  set_seed(lua, *static_cast<const uint64_t*>(lua_touserdata(lua, 1)));
  return 0;
}

void push_environment(lua_State* lua, const char* folder, const char* name) {
  lua_newtable(lua);
  for (const void* key : {static_cast<const void*>(&base_key), static_cast<const void*>(&libraries_key)}) {
    lua_rawgetp(lua, LUA_REGISTRYINDEX, key);
    lua_pushnil(lua);
    while (lua_next(lua, -2)) {
      lua_pushvalue(lua, -2);
      lua_insert(lua, -2);
      lua_rawset(lua, -5);
    }
    lua_pop(lua, 1);
  }
  lua_pushvalue(lua, -1);
  lua_setfield(lua, -2, LUA_GNAME);
  lua_pushvalue(lua, -1);
  lua_pushcclosure(lua, sandboxed_load, 1);
  lua_setfield(lua, -2, "load");
  const auto* require = add_require(Machine::of(lua), folder, name);
  push_registered(lua, require);
  lua_setfield(lua, -2, "require");
}

}  // namespace runner::lua
