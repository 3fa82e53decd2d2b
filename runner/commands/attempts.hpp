// The attempts of one `run` or `resume` command.
#pragma once
#include <string>

#include "runner/commands/checkpoint_plugin.hpp"
#include "runner/commands/elastic_nodes.hpp"
#include "runner/commands/place.hpp"
#include "runner/commands/run_folder.hpp"
#include "runner/commands/run_record.hpp"
#include "runner/commands/start_point.hpp"
#include "runner/launch/members.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

/// The objects and settings that a command's attempts have in common.
struct CommandAttempts {
  const Recipe& recipe;  ///< as given
  Place place;           ///< of the first attempt
  StartPoint start;      ///< of the first attempt
  RunRecord& record;
  const RunFolder& folder;
  CheckpointFollower& checkpoints;  ///< stores them
  StopSignals& signals;
  Members* members = nullptr;       ///< the other supervisors; null if there are none
  ElasticNodes* elastic = nullptr;  ///< of an elastic run, otherwise null
  std::string worker, cache_dir;
  bool accept_changed_data = false;
};

/// Resolves every `auto` and prints the plan.
Plan plan_run(const Recipe& recipe, const Place& place);

/// Runs the workers with `plan`. Begins another attempt with a new plan if the first step runs out of memory and there is a smaller
/// micro-batch to try, and, in an elastic run, if nodes leave, join or are lost. `attempt`: the number of the first attempt, which has
/// begun.
Outcome supervise_attempts(const CommandAttempts& run, int64_t attempt, Plan plan);

}  // namespace runner
