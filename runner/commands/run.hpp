// The common part of `run` and `resume`: connects plan, ledger, supervisor and report.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/commands/command.hpp"
#include "runner/config/recipe.hpp"
#include "runner/launch/cluster.hpp"

namespace runner {

struct LaunchOptions {
  std::string recipe_file;
  std::vector<std::string> overrides;
  bool json = false;
  NodeOptions node;
  std::string resume_run;            ///< id of the run to continue; empty for a new run
  nlohmann::json resumed;            ///< the run to continue, as in `runner show --json`; null for a new run
  std::string resume_checkpoint;     ///< folder of the checkpoint to start from; empty = the newest good one of the run
  bool from_beginning = false;       ///< train the resumed run again from its first step
  bool accept_changed_data = false;  ///< continue although the data position now has another meaning
  std::string sweep;                 ///< id of the sweep that this run is a trial of; empty if it is none
  int64_t trial = 0;
  nlohmann::json rerun;       ///< the run to train again, as in `runner show --json`; null for another run
  std::string report_metric;  ///< metric whose points are printed to stdout as lines {"step", "value"}, for the sweep
};

/// Declares the common options of `run` and `resume`: --set, --unset, --json and the options for several nodes.
void add_launch_options(CLI::App& app, LaunchOptions& options);

/// The action of `run` and `resume`: calls `launch`, which continues if nobody reads its output any more. If it throws,
/// a trial of a sweep also prints the reason to stdout as a JSON line, because the sweep does not read the trial's log.
Action launch_action(std::shared_ptr<const LaunchOptions> options, Action launch);

/// Path of runner-worker, in the folder of this program. Throws Error(environment) if it is missing.
std::string worker_binary();

/// Plans the run, writes the ledger row and the run folder, supervises the workers, and closes the row. If there are several
/// supervisors (num_nodes > 1, or a launcher), rank 0's does this, and the others follow it.
ExitCode launch_run(const LaunchOptions& options);

}  // namespace runner
