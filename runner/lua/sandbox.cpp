// The environment of scripts: functions in C for sandbox.lua, which makes it, and `require`.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runner/base/text.hpp"
#include "runner/lua/machine.hpp"
#include "runner/lua/shipped.hpp"

namespace runner::lua {

namespace {

const char libraries_key = 0;  ///< registry: {library name = its table, or a read-only view of it}
const char base_key = 0;       ///< registry: {name = base function}
const char seed_key = 0;       ///< registry: Lua's math.randomseed

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

// ---- functions whose work counts as instructions

/// Calls the C function in its upvalue. The lengths of string arguments count.
int charged(lua_State* lua) {
  size_t bytes = 64;
  for (int i = 1; i <= lua_gettop(lua); ++i)
    if (lua_type(lua, i) == LUA_TSTRING) bytes += lua_rawlen(lua, i);
  Machine::of(lua).charge(lua, bytes / Machine::bytes_per_instruction);
  return lua_tocfunction(lua, lua_upvalueindex(1))(lua);
}

/// The C function (without upvalues) in argument 1, so that its work counts.
int charge_function(lua_State* lua) {
  lua_settop(lua, 1);
  lua_pushcclosure(lua, charged, 1);
  return 1;
}

int charge_steps(lua_State* lua) {
  constexpr lua_Number most = 1e15;
  Machine::of(lua).charge(lua, static_cast<size_t>(std::clamp(lua_tonumber(lua, 1), 0.0, most)));
  return 0;
}

void set_seed(lua_State* lua, uint64_t seed) {
  lua_rawgetp(lua, LUA_REGISTRYINDEX, &seed_key);
  lua_pushinteger(lua, static_cast<lua_Integer>(seed));
  lua_pushinteger(lua, 0);
  lua_call(lua, 2, 0);
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

int view_of(lua_State* lua) {
  lua_settop(lua, 1);
  make_read_only(lua);
  return 1;
}

/// Pushes a Lua file of this folder as a function without debug information.
void push_own_file(lua_State* lua, std::string_view code) {
  if (luaL_loadbufferx(lua, code.data(), code.size(), "=library", "b") != LUA_OK) lua_error(lua);
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
  luaL_openlibs(lua);
  lua_getglobal(lua, LUA_MATHLIBNAME);
  lua_getfield(lua, -1, "randomseed");
  lua_rawsetp(lua, LUA_REGISTRYINDEX, &seed_key);
  set_seed(lua, Machine::of(lua).options.seed);
  push_own_file(lua, library_code);
  lua_getglobal(lua, LUA_STRLIBNAME);
  lua_getglobal(lua, LUA_TABLIBNAME);
  lua_pushcfunction(lua, charge_steps);
  lua_pushinteger(lua, static_cast<lua_Integer>(Machine::of(lua).string_limit));
  lua_call(lua, 4, 0);
  push_own_file(lua, sandbox_code);
  const luaL_Reg own[] = {{"charged", charge_function},
                          {"execute", execute_command},
                          {"print", sandboxed_print},
                          {"read_only", view_of},
                          {nullptr, nullptr}};
  luaL_newlib(lua, own);
  add_guarded_calls(lua);
  lua_pushboolean(lua, Machine::of(lua).options.trusted);
  lua_call(lua, 2, 2);
  lua_rawsetp(lua, LUA_REGISTRYINDEX, &libraries_key);
  lua_rawsetp(lua, LUA_REGISTRYINDEX, &base_key);
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
