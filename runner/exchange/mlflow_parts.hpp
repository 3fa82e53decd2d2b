// The parts of a run that MLflow's two stores, the database and the folder, have in common.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runner/exchange/import_runs.hpp"

namespace runner {

/// finished, failed, interrupted or lost, for MLflow's word ("FINISHED").
std::string status_of_mlflow(const std::string& status);

/// Tags of users become tags KEY=VALUE, or KEY if the value is empty; some of MLflow's own and of runner's have a place in the
/// ledger.
void add_mlflow_tag(ForeignRun& run, const std::string& key, const std::string& value);

/// The name of a metric: runner writes those that MLflow refuses into tags runner.metric.NAME.
std::string metric_of_mlflow(const std::string& name, const std::map<std::string, std::string>& tags);

/// (step, value), sorted by step and then by time. Returns how many were left out, because there is a later one of the same step.
int64_t add_mlflow_metric(ForeignRun& run, const std::string& name,
                          const std::vector<std::pair<int64_t, double>>& values);

/// Completes the run, and adds it.
void add_mlflow_run(ForeignRuns& found, ForeignRun run, const std::string& experiment);

/// The notes about what was left out.
void note_left_out(ForeignRuns& found, int64_t deleted_runs, int64_t values);

/// A folder store (mlruns): EXPERIMENT/meta.yaml, EXPERIMENT/RUN/meta.yaml, and below RUN the folders params, tags and metrics, with
/// a file for each (mlflow/store/tracking/file_store.py).
bool is_mlflow_folder(const fs::path& folder);
ForeignRuns read_mlflow_folder(const fs::path& folder);

}  // namespace runner
