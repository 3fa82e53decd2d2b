// What `run` and `resume` share: the one place that wires plan, ledger, supervisor and report to a run.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

struct LaunchOptions {
  std::string recipe_file;
  std::vector<std::string> overrides;
  bool json = false;
  std::optional<int> node_rank;
  std::string master_addr;
  int master_port = 0;
  std::string resume_run;         ///< an existing run to continue; empty for a new one
  std::string resume_checkpoint;  ///< of it; empty = the newest good one
};

/// Plans, writes the ledger row and the run folder, supervises the workers, closes the row.
ExitCode launch_run(const LaunchOptions& options);

}  // namespace runner
