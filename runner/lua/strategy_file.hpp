// A Lua file as a strategy, or as the comm hook of another one: what it may contain, and how a recipe names it.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/script_file.hpp"

namespace runner::lua {

/// "lua:FILE.lua", or "lua:NAME" for a shipped one (recipes/strategies_lua).
inline bool names_script(const std::string& name) { return name.starts_with("lua:"); }

/// A strategy as [strategy] names it.
struct StrategyRequest {
  std::string name;  ///< names a script, or what `registry` registers
  Origin asked_at;
  std::string registry = "";  ///< a file that registers names (strategy_registry.hpp); empty: none
  Origin registry_at = {};
  std::vector<std::string> built_in = {};  ///< names that are taken
};
/// As the recipe says.
StrategyRequest strategy_request(const Recipe& recipe, std::vector<std::string> built_in);

/// Functions of a strategy: setup, shard, reduce, after_update, memory, traffic; of a comm hook setup and reduce
/// (memory and traffic are there for the same file as a strategy). recipes/strategies_lua/README.md says what they are
/// given.
struct StrategyFile : ScriptFile {
  bool replicas_differ = false;  ///< between steps, ranks' parameters are not the same
};

/// nullopt, with no diagnostic, where `name` is one that the registry does not have. `registered`, if given, gets the
/// names that it has.
std::optional<StrategyFile> load_strategy_file(State& state, const StrategyRequest& request,
                                               std::vector<Diagnostic>& diagnostics,
                                               std::vector<std::string>* registered = nullptr);
std::optional<ScriptFile> load_comm_hook_file(State& state, const std::string& name, const Origin& asked_at,
                                              std::vector<Diagnostic>& diagnostics);

/// Strategies and comm hooks that come with the program: name -> text.
const std::map<std::string, std::string>& shipped_strategies();
const ScriptKind& strategy_kind();

}  // namespace runner::lua
