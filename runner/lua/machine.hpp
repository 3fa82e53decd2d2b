// The inside of a State: allocator, budgets, the hook that enforces them, and where errors happened.
//
// Debian builds Lua as C: an error is a longjmp. So a frame from which Lua may raise (everything but reading numbers,
// strings and raw table entries) holds nothing with a destructor. Frames that do hold such things call Lua through
// lua_pcall only.
#pragma once
#include <array>
#include <exception>
#include <list>
#include <lua.hpp>
#include <map>

#include "runner/lua/state.hpp"

namespace runner::lua {

/// A function or property of C++ as a closure's upvalue points to it.
struct Registered {
  std::string name;
  Function body;
  bool method = false;  ///< argument 0 is the object
  bool waits = false;   ///< yields what the body returns to State::resume()
};

enum class Spent { nothing, instructions, time, host };

struct State::Machine {
  explicit Machine(StateOptions chosen);
  ~Machine();
  Machine(const Machine&) = delete;

  static Machine& of(lua_State* lua) { return **static_cast<Machine**>(lua_getextraspace(lua)); }
  /// A thread that died of a spent budget must not run its pending __close: Lua would run them without hooks.
  static bool poisoned(lua_State* thread) { return *static_cast<Machine**>(lua_getextraspace(thread)) == nullptr; }
  static void poison(lua_State* thread) { *static_cast<Machine**>(lua_getextraspace(thread)) = nullptr; }

  // ---- budgets. Those that take `lua` raise in it.
  void begin_call();
  void end_call();
  /// Accounts for work that C functions do without running instructions.
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
  /// In a handler of what a registered function threw: `failure` is what the script is told, or the call ends.
  void note_failure() noexcept;
  /// In a handler: the call ends with that exception.
  void host_failed() noexcept;
  LuaError error_of(int status, const char* message, size_t size) const;

  const Registered* add(std::string name, Function body, bool method, bool waits = false);

  static constexpr int hook_interval = 100;  ///< instructions between looks at the clock
  static constexpr int check_interval = 2000;
  static constexpr size_t bytes_per_instruction = 16, bytes_between_checks = 64 << 10;

  StateOptions options;
  lua_State* main = nullptr;
  lua_State* running = nullptr;  ///< the thread that runs now: main or a coroutine
  lua_State* driven = nullptr;   ///< the coroutine that State::resume() runs now
  bool waited = false;           ///< it yielded by a method that waits
  bool place_known = false;      ///< the error that is raised now has noted its place already
  size_t used = 0, string_limit = 0, allocated = 0;
  bool limited = false;  ///< not while the libraries are opened
  Spent spent = Spent::nothing;
  int64_t instructions = 0, c_steps = 0;
  double started = 0, excluded = 0, paused_at = 0, seconds = 0;
  int depth = 0;
  bool failed = false;  ///< the call that goes on, or one in it
  std::exception_ptr host_failure;
  std::string failure;  ///< of the registered function that just failed
  std::array<char, 512> place_file{};
  int place_line = 0;
  std::array<char, 4096> trace{};
  std::map<std::string, std::string> chunks;  ///< as Lua shortens a name in messages -> the name
  std::list<Registered> functions;            ///< closures point into it
  std::map<std::string, Value> modules;       ///< by path, what `require` brought; nil while it is loaded
  std::shared_ptr<Machine*> life;             ///< what references hold; null after the end

 private:
  static void* allocate(void* self, void* block, size_t old_size, size_t new_size);
  static void hook(lua_State* lua, lua_Debug* event);
};

using Machine = State::Machine;

// ---- all of these raise
/// Texts of raise_spent(), while memory is plenty.
void keep_spent_messages(lua_State* lua);
// ---- sandbox.cpp
void open_libraries(lua_State* lua);
/// Pushes an environment for a file: base functions of its own, shared read-only libraries. `require` looks in `folder`
/// and names what it finds after `name`, the file's.
void push_environment(lua_State* lua, const char* folder, const char* name);
// ---- the replaced parts of the libraries: each pushes or sets functions in the table on top of the stack
void add_guarded_calls(lua_State* lua);       ///< pcall, xpcall
void add_guarded_coroutines(lua_State* lua);  ///< resume, wrap, close
void add_bounded_tables(lua_State* lua);
/// Wraps the named C functions (without upvalues) so that they charge for the strings that they are given.
void charge_functions(lua_State* lua, const char* const* names);
void add_bounded_strings(lua_State* lua);
void add_patterns(lua_State* lua);  ///< find, match, gmatch, gsub

// ---- state.cpp
/// Runs a file's text in an environment of its own; throws LuaError.
Value run_text(Machine& machine, std::string_view text, const std::string& name, const std::string& folder,
               const std::vector<Global>& globals);

// ---- bridge.cpp: raise
void push_value(lua_State* lua, const Value& value);
void push_json(lua_State* lua, const nlohmann::json& value, const KeptObjects* objects = nullptr);
void push_read_only_json(lua_State* lua, const nlohmann::json& value);
void push_registered(lua_State* lua, const Registered* function);
/// Replaces the table on top by a read-only view of it.
void make_read_only(lua_State* lua);
// ---- do not raise
Value read_value(lua_State* lua, int index);
/// Keeps a table, function or coroutine. Throws ScriptMistake where memory is out.
Reference reference_to(lua_State* lua, int index);
/// The table behind a read-only view, pushed; or the table itself.
void push_behind_view(lua_State* lua, int index);
std::shared_ptr<Object>* object_at(lua_State* lua, int index);
std::string kind_at(lua_State* lua, int index);
nlohmann::json json_at(lua_State* lua, int index, const std::string& what, const KeepObject* keep = nullptr);

}  // namespace runner::lua
