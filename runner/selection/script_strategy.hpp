// Strategies and comm hooks from Lua files as the planner sees them: entries that claim what the file claims, and the
// buckets that such a strategy works on.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "strategies/catalog.hpp"
#include "strategies/contract/flat_layout.hpp"

namespace runner {

/// Makes the strategy that the recipe's [strategy] takes from a Lua file known to find_strategy(), under the name that
/// the recipe has for it. What is wrong with the file goes to `diagnostics`. Null: see there, or [strategy] names none;
/// `registered`: what names its registry has.
const Entry* learn_script_strategy(const Recipe& recipe, std::vector<Diagnostic>& diagnostics,
                                   std::vector<std::string>* registered = nullptr);

/// The same of a file that no recipe names ("lua:FILE.lua"). Throws RecipeError.
const Entry* learn_script_strategy(const std::string& name);
/// All that a file registers (strategy.registry), in the order of their names. Throws RecipeError.
std::vector<const Entry*> learn_registered_strategies(const std::string& registry);

/// Whether the recipe's strategy.ddp_comm_hook is a file of Lua.
bool has_script_hook(const nlohmann::json& options);
/// The options of that file, complete. What is wrong with it or them goes to `diagnostics`.
nlohmann::json script_hook_options(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// What an entry says of a job's costs: some scripts say nothing of them, and then nobody guesses.
inline bool memory_known(const Entry& entry) { return entry.memory != nullptr; }
inline bool traffic_known(const Entry& entry, const Job& job) {
  return entry.traffic != nullptr && !has_script_hook(job.options);
}

/// Parameters whose gradients are reduced together, in the order in which buckets fill up.
struct ScriptBucket {
  std::vector<size_t> slots;  ///< from the last parameter to the first, as gradients arrive
  bool sharded = false;       ///< each rank keeps optimizer state of its part only
  FlatLayout layout;          ///< of gradients and of parameters
};
/// As ddp makes them (bucket_cap_mb, the first 1 MiB), those that are sharded apart from those that are not.
std::vector<ScriptBucket> script_buckets(const Job& job, const std::function<bool(const ParameterSpec&)>& shard);

/// What the functions `shard`, `memory` and `traffic` of a file are given.
nlohmann::json parameter_for_script(const ParameterSpec& parameter);
nlohmann::json job_for_script(const Job& job, const std::vector<ScriptBucket>& buckets);

}  // namespace runner
