// The functions of a strategy in Lua that the planner calls: `units`, `shard`, `memory`, `traffic`, `setup_optimizer`.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runner/lua/strategy_file.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// They have a Lua state of their own. Several threads make plans; each function here locks it. Errors of a script are Error(usage).
class PlannerScript {
 public:
  explicit PlannerScript(const Recipe& recipe);

  lua::State& state() { return state_; }
  lua::StrategyFile file;
  bool has(const std::string& function) const { return file.functions.contains(function); }

  /// Whether to shard the parameter, by the function `shard`.
  bool shards(const ParameterSpec& parameter, const nlohmann::json& options);
  /// Job::unit_of_parameter by the function `units`. Parameters that are not trained and in no unit get a unit of their own.
  std::vector<size_t> units(const Job& job);
  /// The memory of the plan, with the bytes that `memory` returns.
  MemoryParts memory(const Job& job, const ParallelPlan& plan);
  /// The collectives of the plan, and then those that `traffic` returns.
  std::vector<Traffic> traffic(const Job& job, const ParallelPlan& plan);
  /// The groups that `setup_optimizer` makes of `groups`.
  nlohmann::json groups(const nlohmann::json& groups, const nlohmann::json& options);

 private:
  /// `changed`: arguments that the function may change, before the others; the first one is returned if the function returns nothing.
  nlohmann::json call(const std::string& function, const std::vector<nlohmann::json>& arguments,
                      const nlohmann::json& changed = nullptr);

  std::mutex mutex_;
  lua::State state_;
  std::string name_;                                  ///< in the recipe
  std::map<std::string, bool> sharded_;               ///< answers of `shard`
  std::map<std::string, std::vector<size_t>> units_;  ///< answers of `units`
};

/// The numbers of units that a list of names gives to parameters (Job::unit_of_parameter). `groups`: for each unit the
/// names of blocks ("blocks.0.attention"), of layers ("blocks.0") or of parameters. Throws Error(usage) beginning with
/// `where` unless each trained parameter is in exactly one unit.
std::vector<size_t> unit_numbers(const ModelSpec& model, const nlohmann::json& groups, const std::string& where);

}  // namespace runner
