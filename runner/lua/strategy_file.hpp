// A Lua file as a strategy or as a comm hook: its contents, and its name in a recipe.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/script_file.hpp"

namespace runner::lua {

/// "lua:FILE.lua", or "lua:NAME" for a shipped file (recipes/strategies_lua).
inline bool names_script(const std::string& name) { return name.starts_with("lua:"); }

/// A strategy as [strategy] specifies it.
struct StrategyRequest {
  std::string name;  ///< "lua:..." or a name that `registry` registers
  Origin asked_at;
  std::string registry = "";  ///< a file that registers strategies (strategy_registry.hpp), or empty
  Origin registry_at = {};
  std::vector<std::string> built_in = {};  ///< names of built-in strategies, which cannot be registered
};
/// The request of a recipe.
StrategyRequest strategy_request(const Recipe& recipe, std::vector<std::string> built_in);

/// Functions of a strategy: setup, shard, reduce, after_update, memory, traffic. Functions of a comm hook: setup and
/// reduce (memory and traffic are allowed, because the same file can be a strategy). recipes/strategies_lua/README.md
/// describes their arguments.
struct StrategyFile : ScriptFile {
  bool replicas_differ = false;  ///< parameters differ between ranks after a step
};

/// nullopt without a diagnostic if the registry has no strategy `name`. `registered` gets all names in the registry.
std::optional<StrategyFile> load_strategy_file(State& state, const StrategyRequest& request,
                                               std::vector<Diagnostic>& diagnostics,
                                               std::vector<std::string>* registered = nullptr);
std::optional<ScriptFile> load_comm_hook_file(State& state, const std::string& name, const Origin& asked_at,
                                              std::vector<Diagnostic>& diagnostics);

/// Strategies and comm hooks that are part of the program: name -> text.
const std::map<std::string, std::string>& shipped_strategies();
const ScriptKind& strategy_kind();

}  // namespace runner::lua
