// Reads the runs that other programs have recorded.
#pragma once
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/ledger/foreign_runs.hpp"

namespace runner {

struct ForeignRuns {
  std::vector<ForeignRun> runs = {};
  std::vector<std::string> notes = {};  ///< what was left out, and why
};

/// A table of metrics with a header (RFC 4180). Long: columns `metric` (or `key`), `step`, `value`, and optionally `run` and `name`,
/// as runner export --metrics csv writes them. Wide: a column of steps (step, Step, global_step, iteration, epoch, ...) and a column
/// for each metric, as Lightning's CSVLogger and runner's csv logger write them. TensorBoard's download: Wall time, Step, Value.
ForeignRuns read_csv_runs(const fs::path& file);

/// A folder with TensorBoard's event files, at any depth: each folder with such files is a run, or a single file. Scalars of
/// SummaryWriter (simple_value) and of TensorFlow 2 (tensors), text summaries are left out; parameters of the HParams plug-in.
ForeignRuns read_tensorboard_runs(const fs::path& path);

/// MLflow's SQLite store (mlflow.db): runs, parameters, tags, metrics. Runs that were deleted there are left out.
ForeignRuns read_mlflow_runs(const fs::path& file);

/// An offline run of Weights & Biases: run-ID.wandb, its folder, or a folder of such folders.
ForeignRuns read_wandb_runs(const fs::path& path);

/// What a file or folder is: bundle, mlflow, wandb, tensorboard or csv; empty: unknown.
std::string kind_of_source(const fs::path& path);

}  // namespace runner
