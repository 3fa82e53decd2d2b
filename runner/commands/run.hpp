// What `run` and `resume` share: the only code that connects plan, ledger, supervisor and report.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/config/recipe.hpp"
#include "runner/launch/cluster.hpp"

namespace runner {

struct LaunchOptions {
  std::string recipe_file;
  std::vector<std::string> overrides;
  bool json = false;
  NodeOptions node;
  std::string resume_run;            ///< an existing run to continue; empty for a new one
  nlohmann::json resumed;            ///< the run to continue, as `runner show --json` has it; null for a new run
  std::string resume_checkpoint;     ///< of it; empty = the newest good one. Of a new run: begins there
  bool accept_changed_data = false;  ///< go on although a position in the data means something else now
  std::string sweep;                 ///< this run is a trial of; empty: none
  int64_t trial = 0;
  std::string report_metric;  ///< each point of it is a line {"step", "value"} on stdout, for the sweep
};

/// Declares what `run` and `resume` have in common: --set, --unset, --json and which node this one is.
void add_launch_options(CLI::App& app, LaunchOptions& options);

/// Path of runner-worker, in the folder of this program. Throws Error(environment).
std::string worker_binary();

/// Plans, writes the ledger row and the run folder, supervises the workers, closes the row. With several supervisors
/// (num_nodes > 1, or one rank each under a launcher) rank 0's does so, and the others follow it.
ExitCode launch_run(const LaunchOptions& options);

}  // namespace runner
