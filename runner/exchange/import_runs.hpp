// Reads the runs that other programs have recorded.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/ledger/foreign_runs.hpp"

namespace runner {

struct ForeignRuns {
  std::vector<ForeignRun> runs = {};
  std::vector<std::string> notes = {};  ///< what was left out, and why
};

/// The points of a run while it is read: metric -> step -> value.
using PointTable = std::map<std::string, std::map<int64_t, double>>;

std::vector<MetricPoint> points_in(const PointTable& table);

/// A program whose runs can be imported.
struct ForeignSource {
  std::string name;     ///< as in `runner import NAME PATH`
  std::string program;  ///< "MLflow"
  /// The files, or the folders that are wholly of this program, at or below `path`. Empty: there are none.
  std::vector<fs::path> (*places)(const fs::path& path);
  /// Reads all runs at `path`. What is damaged or has no place in the ledger is left out with a note. Throws Error that names the
  /// file if nothing can be read.
  ForeignRuns (*read)(const fs::path& path);
};

/// mlflow, wandb, tensorboard, csv.
const std::vector<ForeignSource>& foreign_sources();

/// The runs at `path`, with texts that can be shown (terminal_text), without secret values (secrets.hpp), with times in the years 1970 to
/// 9999, and tags that `runner tag` accepts. Runs that this program's own loggers have written took their metric `seconds`, unless the
/// source has the time of the start exactly (MLflow). Throws Error(usage) if `path` does not exist or has no runs.
ForeignRuns read_foreign_runs(const ForeignSource& source, const fs::path& path);

/// The name of the source that a file or folder is of, also "bundle". Empty: unknown. Throws Error(usage) for a folder with files of
/// several programs, and for a ledger, which is no source.
std::string kind_of_source(const fs::path& path);

/// A table of metrics with a header (RFC 4180). Long: columns `metric` (or `key`), `step`, `value`, and optionally `run` and `name`,
/// as runner export --metrics csv writes them. Wide: a column of steps (step, Step, global_step, iteration, epoch, ...) and a column
/// for each metric, as Lightning's CSVLogger and runner's csv logger write them. TensorBoard's download: Wall time, Step, Value. Rows
/// belong to the run in the column `run` (or `run_id`), or else `name` (or `run_name`), or else all to one.
ForeignRuns read_csv_runs(const fs::path& file);

/// A folder with TensorBoard's event files, at any depth: each folder with such files is a run. Or a single file. Scalars of
/// SummaryWriter (simple_value) and of TensorFlow 2 (tensors) become points, parameters of the HParams plug-in become settings. Text
/// summaries are left out.
ForeignRuns read_tensorboard_runs(const fs::path& path);
/// Whether the name of a file is that of an event file.
bool is_event_file(const fs::path& path);

/// MLflow's SQLite store (mlflow.db), or its folder store (mlruns): runs, parameters, tags, metrics. Runs that were deleted there are
/// left out.
ForeignRuns read_mlflow_runs(const fs::path& path);

/// An offline run of Weights & Biases: run-ID.wandb, its folder, or a folder of such folders. The files of a run that was resumed
/// are joined; where both have a value, the later one counts.
ForeignRuns read_wandb_runs(const fs::path& path);

}  // namespace runner
