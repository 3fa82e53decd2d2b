// Implementation of State: allocator, budgets, the debug hook that enforces them, and the places of errors.
//
// Debian builds Lua as C, so an error is a longjmp, which skips destructors. A C++ frame that calls a Lua function that
// may raise must not have objects with destructors. (Reading numbers, strings and raw table entries does not raise.)
// Other frames call Lua only through lua_pcall.
#pragma once
#include <array>
#include <exception>
#include <list>
#include <lua.hpp>
#include <map>
#include <set>

#include "runner/lua/state.hpp"

namespace runner::lua {

/// A C++ function or property. The upvalue of its closure points to it.
struct Registered {
  std::string name;
  Function body;
  bool method = false;  ///< argument 0 is the object
  bool waits = false;   ///< yields its result to State::resume()
};

enum class Spent { nothing, instructions, time, host };

struct State::Machine {
  explicit Machine(StateOptions chosen);
  ~Machine();
  Machine(const Machine&) = delete;

  static Machine& of(lua_State* lua) { return **static_cast<Machine**>(lua_getextraspace(lua)); }
  /// A coroutine that ended because of a spent budget must not run its pending __close: Lua would run it without hooks.
  static bool poisoned(lua_State* thread) { return *static_cast<Machine**>(lua_getextraspace(thread)) == nullptr; }
  static void poison(lua_State* thread) { *static_cast<Machine**>(lua_getextraspace(thread)) = nullptr; }

  // ---- budgets. Functions with a parameter `lua` raise.
  void begin_call();
  void end_call();
  /// Counts work of C functions that execute no Lua instructions.
  void charge(lua_State* lua, size_t steps) {
    c_steps += static_cast<int64_t>(steps);
    if (c_steps >= check_interval) check(lua);
  }
  void check(lua_State* lua);
  [[noreturn]] void raise_spent(lua_State* lua);
  void raise_if_spent(lua_State* lua) {
    if (spent != Spent::nothing) raise_spent(lua);
  }
  void pause_clock();
  void resume_clock();

  // ---- errors
  void note_place(lua_State* lua);
  /// For exception handlers of registered functions: stores the message for the script in `failure`, or ends the call.
  void note_failure() noexcept;
  /// For exception handlers: ends the call with the current exception.
  void host_failed() noexcept;
  LuaError error_of(int status, const char* message, size_t size) const;

  // ---- lines
  int hook_events() const { return LUA_MASKCOUNT | (options.lines_file.empty() ? 0 : LUA_MASKLINE); }
  void note_line(const lua_Debug& frame) noexcept;

  const Registered* add(std::string name, Function body, bool method, bool waits = false);

  static constexpr int hook_interval = 100;  ///< instructions between checks of the clock
  static constexpr int check_interval = 2000;
  static constexpr size_t bytes_per_instruction = 16, bytes_between_checks = 64 << 10;

  StateOptions options;
  lua_State* main = nullptr;
  lua_State* running = nullptr;  ///< the thread that runs now: main or a coroutine
  lua_State* driven = nullptr;   ///< the coroutine in State::resume(), or null
  bool waited = false;           ///< the coroutine yielded by a method that waits
  bool place_known = false;      ///< the place of the current error is already noted
  size_t used = 0, string_limit = 0, allocated = 0;
  bool limited = false;  ///< whether the memory limit applies; not while libraries are opened
  bool opened = false;   ///< whether the libraries are open: what opens them does not count as work of a script
  Spent spent = Spent::nothing;
  int64_t instructions = 0, c_steps = 0;
  double started = 0, excluded = 0, paused_at = 0;
  int depth = 0;
  bool failed = false;  ///< in the current outermost call or in one inside it
  std::set<std::pair<std::string, int>> noted_lines;
  std::exception_ptr host_failure;
  std::string failure;  ///< message of the last failed registered function
  std::array<char, 512> place_file{};
  int place_line = 0;
  std::array<char, 4096> trace{};
  /// The text that Lua writes before a message that has no place: an error of its own inside library.lua.
  static constexpr std::string_view no_place = "?:-1: ";
  std::map<std::string, std::string> chunks;  ///< name as Lua shortens it in messages -> full name
  std::list<Registered> functions;            ///< closures point into it, so addresses are stable
  std::map<std::string, Value> modules;       ///< results of `require` by path; nil while the file is loading
  std::shared_ptr<Machine*> life;             ///< shared with references; *life is null after destruction

 private:
  static void* allocate(void* self, void* block, size_t old_size, size_t new_size);
  static void hook(lua_State* lua, lua_Debug* event);
};

using Machine = State::Machine;

// ---- all of these may raise
/// Stores the messages of raise_spent() in the registry, while there is memory.
void keep_spent_messages(lua_State* lua);
// ---- sandbox.cpp
void open_libraries(lua_State* lua);
/// Seeds math.random, also if a script has replaced math.randomseed. Argument: a pointer to a uint64_t.
int seed_random(lua_State* lua);
/// Pushes the environment of a file: separate base functions, shared read-only libraries. `require` looks in `folder`.
/// Files that `require` loads get names in the folder of `name`, the name of the file.
void push_environment(lua_State* lua, const char* folder, const char* name);
/// Sets pcall, xpcall, resume, wrap and close in the table on top of the stack.
void add_guarded_calls(lua_State* lua);

// ---- state.cpp
/// Runs a text as a file in a new environment. Throws LuaError.
Value run_text(Machine& machine, std::string_view text, const std::string& name, const std::string& folder,
               const std::vector<Global>& globals);

// ---- bridge.cpp: these may raise
void push_value(lua_State* lua, const Value& value);
void push_json(lua_State* lua, const nlohmann::json& value, const KeptObjects* objects = nullptr);
void push_read_only_json(lua_State* lua, const nlohmann::json& value);
void push_registered(lua_State* lua, const Registered* function);
/// Replaces the table on top of the stack by a read-only view of it.
void make_read_only(lua_State* lua);
// ---- do not raise
Value read_value(lua_State* lua, int index);
/// Makes a reference to a table, function or coroutine. Throws ScriptMistake if there is no memory.
Reference reference_to(lua_State* lua, int index);
/// Pushes the table behind a read-only view, or the table itself if it is not a view.
void push_behind_view(lua_State* lua, int index);
std::shared_ptr<Object>* object_at(lua_State* lua, int index);
std::string kind_at(lua_State* lua, int index);
nlohmann::json json_at(lua_State* lua, int index, const std::string& what, const KeepObject* keep = nullptr,
                       Strings strings = Strings::utf8);

}  // namespace runner::lua
