// The points of runs in the formats of other programs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

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
///   mlflow       a folder store (mlruns), see mlflow_files.hpp
ExportedMetrics export_metrics(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& format,
                               const std::string& output);

}  // namespace runner
