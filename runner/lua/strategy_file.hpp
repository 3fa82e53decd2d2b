// A Lua file as a strategy or as a comm hook: its contents, and its name in a recipe.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/script_file.hpp"
#include "runner/lua/shipped.hpp"

namespace runner::lua {

/// "lua:FILE.lua", or "lua:NAME" for a shipped file (recipes/strategies_lua).
inline bool names_script(const std::string& name) { return name.starts_with("lua:"); }

/// A strategy that is part of the program, as Lua files can name it.
struct BuiltInStrategy {
  std::string name;  ///< or an alias
  std::string about = "";
  std::vector<std::string> options = {};  ///< names
};

/// A strategy as [strategy] specifies it.
struct StrategyRequest {
  std::string name;  ///< "lua:..." or a name that `registry` registers
  Origin asked_at;
  std::string registry = "";  ///< a file that registers strategies (StrategyRegistry), or empty
  Origin registry_at = {};
  std::vector<BuiltInStrategy> built_in = {};  ///< that can be extended
};
/// The request of a recipe.
StrategyRequest strategy_request(const Recipe& recipe, std::vector<BuiltInStrategy> built_in);

/// Functions of a strategy: setup, setup_module, setup_optimizer, units, shard, reduce, after_update, memory, traffic. Functions of a comm
/// hook: setup and reduce (memory and traffic are allowed, because the same file can be a strategy).
/// recipes/strategies_lua/README.md describes their arguments.
struct StrategyFile : ScriptFile {
  bool replicas_differ = false;  ///< parameters differ between ranks after a step
  std::string base = "";         ///< the built-in strategy that it extends; empty: none
  /// Whether its function `reduce` (without a base: its lack) replaces the sum of gradients.
  bool reduces() const { return base.empty() || functions.contains("reduce"); }
};

/// The names that a registry registered and removed. `removed`: names of built-in strategies.
struct RegisteredNames {
  std::vector<std::string> registered = {}, removed = {};
};

/// nullopt without a diagnostic if the registry has no strategy `name`. `names`: receives those of the registry.
std::optional<StrategyFile> load_strategy_file(State& state, const StrategyRequest& request,
                                               std::vector<Diagnostic>& diagnostics, RegisteredNames* names = nullptr);
/// Adds a mistake of a file that has no line.
void report_strategy_mistake(const ScriptFile& file, const std::string& message, std::vector<Diagnostic>& diagnostics);
std::optional<ScriptFile> load_comm_hook_file(State& state, const std::string& name, const Origin& asked_at,
                                              std::vector<Diagnostic>& diagnostics);

const ScriptKind& strategy_kind();

/// The objects that these functions get as their first arguments, with the names that they have, without LibTorch. Tests compare them with
/// the classes of a training (strategy_classes()).
const std::map<std::string, std::vector<ObjectNames>>& strategy_arguments();

}  // namespace runner::lua
