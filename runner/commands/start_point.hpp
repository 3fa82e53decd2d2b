// Where an attempt of a run starts, and whether the recipe can continue from there.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runner/checkpoint/checkpoint_store.hpp"
#include "runner/commands/run.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

/// The beginning of the note in the record of a run that continued with changed data.
inline const std::string accepted_changes = "continues with changed training data (--accept-changed-data): ";

struct StartPoint {
  std::string checkpoint;  ///< folder; empty = no checkpoint
  int64_t step = 0;        ///< points after this step are deleted, because they are computed again
  bool completed = false;  ///< the checkpoint replaced another one of its step, see Ledger::begin_attempt()
  int64_t attempt = 0;     ///< the attempt that wrote the checkpoint; 0 = unknown
  int64_t seen = 0;        ///< the run's last attempt when this was chosen; 0 = none
};

/// Whether the checkpoint is in the run's folder now (written_by() tells who wrote it). False for an empty path.
bool in_run_folder(const fs::path& checkpoint, const fs::path& run_dir);

/// The newest good checkpoint that is not given up, of the run's folder and of its store (null: there is none).
StartPoint newest_start(const fs::path& run_dir, const Attempts& attempts, CheckpointStore* store);

/// The start point that the command line asks for: a named checkpoint, the beginning, or the newest checkpoint of the
/// resumed run or of its store (null: there is none). If its last attempt started from a checkpoint of another run and
/// wrote none, it is that one. Throws Error(usage) if the named folder is not a checkpoint or one that the run has
/// given up, and Error(environment) if a checkpoint is damaged, or if the run has recorded checkpoints and none of them
/// can be used.
StartPoint choose_start(const LaunchOptions& options, const std::string& home, CheckpointStore* store);

/// Throws Error(usage) with every difference if the plan's recipe cannot continue from `start`: another model, an
/// optimizer with other state, or an earlier end. Returns notes for the record about accepted changes.
std::vector<std::string> check_start(const LaunchOptions& options, const StartPoint& start, const Plan& plan);
/// Throws Error(usage) if the checkpoint's position has another meaning in the plan's data. Returns notes for the record about accepted
/// changes, and without a checkpoint about those since the run began. May read the data.
std::vector<std::string> check_data(const LaunchOptions& options, const StartPoint& start, const Plan& plan,
                                    const std::string& cache_dir);

}  // namespace runner
