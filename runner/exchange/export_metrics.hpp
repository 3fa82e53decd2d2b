// The points of runs in the formats of other programs.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

struct MetricFormat {
  std::string name;
  bool is_text = false;  ///< can be written to stdout
};

/// Throws Error(usage) with the formats that there are, and for W&B with what to do instead.
MetricFormat metric_format(const std::string& name);

struct ExportedMetrics {
  int64_t runs = 0, metrics = 0, points = 0;  ///< `metrics`: different names
};

/// Writes all points of the runs, by run, metric and step. Values keep their full precision, except in TensorBoard's event files,
/// which have floats. `output`: a file or folder that exists completely afterwards or not at all; empty: stdout. Throws
/// Error(environment) if it cannot be written.
///
///   csv          run,name,metric,step,value            NaN and infinities as nan, inf, -inf
///   jsonl        {"run", "name", "metric", "step", "value"}     these as "NaN", "Infinity", "-Infinity"
///   parquet      the same columns: three strings, int64, double
///   tensorboard  a folder with one folder for each run
///   mlflow       a folder store (mlruns), see export_mlflow()
ExportedMetrics export_metrics(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& format,
                               const std::string& output);

// Formats that are folders.

/// A run with its points and the times of its steps, for formats that store a time with each value.
struct ExportedRun {
  std::string id, folder;  ///< `folder`: a name that is unique among runs, NAME-END of the id
  nlohmann::json shown;    ///< as Ledger::show()
  std::map<std::string, std::vector<std::pair<int64_t, double>>> metrics;  ///< (step, value), sorted by step

  /// Unix seconds; 0 for an imported run whose start is not known.
  double started() const;
  /// Unix seconds: the start and the training time up to the step, which the metric `seconds` has; the start if there is none.
  double time_of(int64_t step) const;
};

ExportedRun exported_run(const Ledger& ledger, const std::string& run);

using WriteRun = std::function<void(const ExportedRun& run)>;
/// Calls `begin` with the name of a new folder beside `output`, and the result with each run. Then renames that folder to `output`. Throws
/// Error(environment).
ExportedMetrics export_folder(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output,
                              const std::function<WriteRun(const fs::path& temporary)>& begin);

/// Runs as MLflow's folder store. MLflow's client reads it (version 3 with MLFLOW_ALLOW_FILE_STORE=true), and `mlflow
/// migrate-filestore` copies it to a database. The folder `output`: EXPERIMENT/meta.yaml, EXPERIMENT/RUN/meta.yaml, and below RUN the
/// folders params, tags and metrics with a file for each (mlflow/store/tracking/file_store.py). Each group of runs is an experiment;
/// runs without one are in "Default". The id of a run is a digest of its id here, which the tag runner.run has. Names are those of
/// mlflow_name(); where two become the same, or one is a folder of the other, the later one gets a number. The tag runner.metric.NAME
/// has the name here, as that of the logger does.
ExportedMetrics export_mlflow(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output);

}  // namespace runner
