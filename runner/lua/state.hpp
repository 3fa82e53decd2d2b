// A Lua 5.4 state with budgets of memory, instructions and time, and a sandbox: accident-proof, not a security wall.
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
  size_t memory_bytes = 64u << 20;    ///< of the whole state; one string may take a 64th of it, but at least 64 KiB
  int64_t instructions = 50'000'000;  ///< of one call; memory counts, too: 16 bytes are one
  double seconds = 1.0;               ///< of one call, wall time, without that of registered functions
};

struct StateOptions {
  Limits limits = {};
  bool trusted = false;                                   ///< opens all standard libraries; the budgets stay
  uint64_t seed = 0;                                      ///< of math.random
  std::function<void(std::string_view line)> print = {};  ///< default: nothing is printed
  /// What an exception of a registered function says where the script is to blame: it becomes a ScriptMistake. Empty:
  /// it is not. Must not throw.
  std::function<std::string(const std::exception&)> mistake_of = {};
};

/// One state, one thread. Files run in environments of their own; what they see besides Lua's harmless libraries is
/// what is handed to them. A budget that is spent stays spent until the outermost call() returns: no pcall, coroutine,
/// message handler or __close goes on. The next call starts with full budgets.
///
/// The sandbox has no io, package, dofile, loadfile; of os only clock, date, difftime and time; of debug only
/// traceback. `load` takes text only, `require "name"` finds name.lua beside the file, metatables take no __gc,
/// libraries and the metatable of strings are read-only, collectgarbage knows "count" alone. Order of pairs() and
/// addresses in tostring() differ from process to process: do not let a result depend on them.
class State {
 public:
  explicit State(StateOptions options = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Runs a file in an environment of its own and returns what it returns (the first value). `name` is the file's in
  /// messages. Throws LuaError, Error(environment) where it cannot be read.
  Value load_file(const fs::path& path, const std::string& name = "", const std::vector<Global>& globals = {});
  /// The same from text; `folder` is where `require` looks (empty: nowhere).
  Value load_text(const std::string& text, const std::string& name, const fs::path& folder = {},
                  const std::vector<Global>& globals = {});

  /// Calls a function that a script gave. Throws LuaError, or what a registered function threw.
  Value call(const Reference& function, const std::vector<Value>& arguments = {});

  /// A function of a script that can wait (Class::waiting_method) and go on later. Each resume() has full budgets.
  Reference coroutine(const Reference& function);
  struct Resumed {
    bool ended = false;  ///< the function returned
    Value value = {};    ///< what it returned, or what the body of the method returned that it waits in
  };
  /// Runs a coroutine until it waits or ends. `answer` is the function's argument at first, then the result of the
  /// method that it waits in. Throws LuaError, also where the function yields by itself; then it cannot go on.
  Resumed resume(const Reference& coroutine, const Value& answer);

  /// A field of a table that a script gave, raw; nil when it is not there.
  Value field(const Reference& table, const std::string& name);
  /// The names of a table's string keys, sorted.
  std::vector<std::string> keys(const Reference& table);
  /// The line where a function begins in its file; 0 for functions that are not the script's.
  int line_of(const Reference& function);
  /// A table as plain data; cycles, holes, other keys than names or 1..n, and what is no
  /// data are refused with their path. Throws ScriptMistake. `what` begins the message. Objects are what `keep` makes
  /// of them; without it they are no data.
  nlohmann::json to_json(const Reference& table, const std::string& what, const KeepObject& keep = {});
  /// Plain data as a table that scripts can change, or not.
  Reference table(const nlohmann::json& data, const KeptObjects& objects = {});
  Reference read_only(const nlohmann::json& data);

  /// Frees what scripts hold no more: for objects that are larger than the handles Lua sees of them.
  void collect_garbage();
  size_t memory_bytes() const;
  /// Instructions and seconds that the last outermost call took.
  int64_t instructions_used() const;
  double seconds_used() const;

  struct Machine;

 private:
  std::unique_ptr<Machine> machine_;
};

}  // namespace runner::lua
