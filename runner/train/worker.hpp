// One rank: reads resolved.toml, connects to the other ranks, builds model and strategy, trains, and reports the
// result.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

struct WorkerOptions {
  std::string run_dir;               ///< contains resolved.toml
  int64_t attempt = 1;               ///< number of the attempt of the run
  std::string resume_from;           ///< a checkpoint folder; empty = start from the initial weights
  bool accept_changed_data = false;  ///< ignore the description of the data in resume_from
  std::string cache_dir;             ///< tokenized data, which the supervisor has made before
};

/// Returns done, preempted (stopped on request, after a checkpoint), or the code of the failure. A failure has
/// already been emitted as a `failed` event.
ExitCode run_worker(const WorkerOptions& options);

}  // namespace runner
