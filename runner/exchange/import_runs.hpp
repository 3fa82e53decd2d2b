// Reads the runs that other programs have recorded.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
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
  bool has_status = true;  ///< whether a run there says that it failed
};

/// mlflow, wandb, tensorboard, csv.
const std::vector<ForeignSource>& foreign_sources();

/// The runs at `path`, with texts that can be shown (terminal_text), without secret values (secrets.hpp), with times in the years 1970 to
/// 9999 (start 0: not known), and tags that `runner tag` accepts. Runs of this program in tables with times took their metric
/// `seconds`. Throws Error(usage) if `path` does not exist or has no runs.
ForeignRuns read_foreign_runs(const ForeignSource& source, const fs::path& path);

/// The name of the source that a file or folder is of, also "bundle". Empty: unknown. Throws Error(usage) for a folder with files of
/// several programs, and for a ledger, which is no source.
std::string kind_of_source(const fs::path& path);

/// A table of metrics with a header (RFC 4180). Long: columns `metric` (or `key`), `step`, `value`, and optionally `run` and `name`,
/// as runner export --metrics csv writes them. Wide: a column of steps (step, Step, global_step, iteration, epoch, ...) and a column
/// for each metric, as Lightning's CSVLogger and runner's csv logger write them. TensorBoard's download: Wall time, Step, Value. A
/// column of times (Wall time, wall_time or _timestamp) has the start and the end; without one, they are not known. Rows belong to the run
/// in the column `run` (or `run_id`), or else `name` (or `run_name`), or else all to one.
ForeignRuns read_csv_runs(const fs::path& file);

/// A folder with TensorBoard's event files, at any depth: each folder with such files is a run. Or a single file. Scalars of
/// SummaryWriter (simple_value) and of TensorFlow 2 (tensors) become points, parameters of the HParams plug-in become settings. Text
/// summaries are left out. The start is the time of the first record.
ForeignRuns read_tensorboard_runs(const fs::path& path);
/// Whether the name of a file is that of an event file.
bool is_event_file(const fs::path& path);
/// The first number of a TensorProto (tensorflow/core/framework/tensor.proto), which event files have: of the types float, double, half,
/// bfloat16, bool and integers of 8 to 64 bits, in the field of its type or as bytes, in any order of the fields. Nothing for other types
/// and for a tensor without a number. Throws Error(environment) if the message is damaged.
std::optional<double> scalar_in_tensor(std::string_view tensor);

/// MLflow's SQLite store (mlflow.db), or its folder store (mlruns): runs, parameters, tags, metrics. Runs that were deleted there are
/// left out.
ForeignRuns read_mlflow_runs(const fs::path& path);
/// Whether a folder is a folder store: EXPERIMENT/meta.yaml, EXPERIMENT/RUN/meta.yaml, and below RUN the folders params, tags and metrics,
/// with a file for each (mlflow/store/tracking/file_store.py).
bool is_mlflow_folder(const fs::path& folder);

/// An offline run of Weights & Biases: run-ID.wandb, its folder, or a folder of such folders. The files of a run that was resumed
/// are joined; where both have a value, the later one counts.
ForeignRuns read_wandb_runs(const fs::path& path);

}  // namespace runner
