// A sandboxed Lua 5.4 state with limits of memory, instructions and time. It protects from accidents, not from attacks.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/lua/error.hpp"
#include "runner/lua/value.hpp"

namespace runner::lua {

struct Limits {
  size_t memory_bytes = 64u << 20;    ///< of the state; a string may use a 64th of it, but at least 64 KiB
  int64_t instructions = 50'000'000;  ///< of one call; 16 allocated bytes count as one
  double seconds = 1.0;               ///< of one call, wall time, without time in registered functions
};

struct StateOptions {
  Limits limits = {};
  bool trusted = false;                                   ///< opens all standard libraries; limits still apply
  uint64_t seed = 0;                                      ///< of math.random; see State::seed()
  std::function<void(std::string_view line)> print = {};  ///< default: nothing is printed
  /// Returns the message for an exception of a registered function that is the script's mistake: it becomes a
  /// ScriptMistake. Returns "" for other exceptions. Must not throw.
  std::function<std::string(const std::exception&)> mistake_of = {};
  std::string lines_file = {};  ///< appends FILE:LINE of each line that is run, once; empty: does not
};

/// Use each state from one thread. Each file runs in its own environment, with Lua's safe libraries and the given
/// globals. A spent budget stays spent until the outermost call() returns: no pcall, coroutine, message handler or
/// __close continues. The next call starts with full budgets.
///
/// The sandbox has no io, package, dofile, loadfile; of os only clock, date, difftime and time; of debug only
/// traceback. `load` accepts text only. `require "name"` loads name.lua from the folder of the file. Metatables must
/// not have __gc. Libraries and the metatable of strings are read-only. collectgarbage accepts only "count". The order
/// of pairs() and the addresses in tostring() differ between processes: results must not depend on them.
class State {
 public:
  explicit State(StateOptions options = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Runs a file in a new environment and returns its first result. `name` is its name in messages. Throws LuaError,
  /// and Error(environment) if the file cannot be read.
  Value load_file(const fs::path& path, const std::string& name = "", const std::vector<Global>& globals = {});
  /// Runs a text as load_file() runs a file. `require` looks in `folder` (empty: nowhere).
  Value load_text(const std::string& text, const std::string& name, const fs::path& folder = {},
                  const std::vector<Global>& globals = {});

  /// Calls a function of a script. Throws LuaError, or the exception of a registered function.
  Value call(const Reference& function, const std::vector<Value>& arguments = {});

  /// Makes a coroutine of a script's function, which may wait (Class::waiting_method). Each resume() has full budgets.
  Reference coroutine(const Reference& function);
  struct Resumed {
    bool ended = false;  ///< the function returned
    Value value = {};    ///< its result, or the result of the method in which it waits
  };
  /// Runs a coroutine until it waits or ends. `answer` is first the function's argument, then the result of the method
  /// in which it waits. Throws LuaError, also if the function yields by itself; then it cannot be resumed.
  Resumed resume(const Reference& coroutine, const Value& answer);

  /// Seeds math.random.
  void seed(uint64_t seed);

  /// A field of a script's table, without metamethods; nil if it does not exist.
  Value field(const Reference& table, const std::string& name);
  /// The names of a table's string keys, sorted.
  std::vector<std::string> keys(const Reference& table);
  /// The line where a function begins in its file; 0 for C functions.
  int line_of(const Reference& function);
  /// For read_bytecode(); "" for C functions. Of a text: of a function that would run it.
  std::string bytecode(const Reference& function);
  std::string bytecode_of(const std::string& text, const std::string& name);
  /// A value of the enclosing code that the function uses; nil if there is none of this number (from 0).
  Value upvalue(const Reference& function, int number);
  /// A table as plain data. Throws ScriptMistake with the path of cycles, holes, keys other than names or 1..n, and
  /// values that are not data. `what` starts the message. `keep` converts objects; without it they are not allowed.
  /// Keys are always UTF-8.
  nlohmann::json to_json(const Reference& table, const std::string& what, const KeepObject& keep = {},
                         Strings strings = Strings::utf8);
  /// Plain data as a table that scripts can change (table) or cannot change (read_only).
  Reference table(const nlohmann::json& data, const KeptObjects& objects = {});
  Reference read_only(const nlohmann::json& data);

  /// Frees unreachable objects. For objects that are larger than their handles in Lua.
  void collect_garbage();
  size_t memory_bytes() const;
  /// Instructions of the last outermost call. Tests compare it with the limit.
  int64_t instructions_used() const;

  struct Machine;

 private:
  std::unique_ptr<Machine> machine_;
};

}  // namespace runner::lua
