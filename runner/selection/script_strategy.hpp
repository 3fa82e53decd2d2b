// Strategies and comm hooks in Lua files, for the planner: catalog entries that call the functions of the file, and the
// buckets of such a strategy.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/lua/strategy_file.hpp"
#include "strategies/catalog.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// If [strategy] takes its strategy from a Lua file, makes it known to find_strategy(), under the name in the recipe.
/// Mistakes in the file go to `diagnostics`. nullptr: there is a mistake, or no such file. `names`: receives those of the registry.
const Entry* learn_script_strategy(const Recipe& recipe, std::vector<Diagnostic>& diagnostics,
                                   lua::RegisteredNames* names = nullptr);
/// The entry of the recipe's strategy; null only if the strategy is in no Lua file. Throws RecipeError.
const Entry* script_entry(const Recipe& recipe);
/// The strategies that files can extend, and their aliases.
std::vector<lua::BuiltInStrategy> built_in_strategies();

/// The entry of a strategy "lua:FILE.lua" without a recipe. Throws RecipeError.
const Entry* learn_script_strategy(const std::string& name);
/// All strategies that a file (strategy.registry) registers, ordered by name. `removed`: receives the names of built-in strategies that it
/// removes. Throws RecipeError.
std::vector<const Entry*> learn_registered_strategies(const std::string& registry,
                                                      std::vector<std::string>* removed = nullptr);

/// The option of a strategy whose value is a comm hook: a built-in one, or a Lua file.
inline constexpr const char* comm_hook_option = "ddp_comm_hook";
/// Whether it is a Lua file in `options`.
bool has_script_hook(const nlohmann::json& options);
/// Whether memory and traffic are known. A Lua file may lack these functions; its costs are not estimated then.
inline bool memory_known(const Entry& entry) { return entry.memory != nullptr; }
inline bool traffic_known(const Entry& entry, const Job& job) {
  return entry.traffic != nullptr && !has_script_hook(job.options);
}

}  // namespace runner
