// One rank: reads resolved.toml, meets the others, builds model and strategy, trains, and reports how it ended.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

struct WorkerOptions {
  std::string run_dir;               ///< with resolved.toml
  int64_t attempt = 1;               ///< of the run: its number
  std::string resume_from;           ///< a checkpoint folder; empty = start from the initial weights
  bool accept_changed_data = false;  ///< what resume_from knows of the data's meaning no longer counts
  std::string cache_dir;             ///< tokenized data (made by the supervisor before)
};

/// Exit code: done, preempted (asked to stop and a checkpoint was published), or what the failure means; a failure has
/// been emitted as a `failed` event.
ExitCode run_worker(const WorkerOptions& options);

}  // namespace runner
