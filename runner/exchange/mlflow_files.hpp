// Runs of the ledger as MLflow's folder store. MLflow's client reads it (version 3 with MLFLOW_ALLOW_FILE_STORE=true), and `mlflow
// migrate-filestore` copies it to a database.
#pragma once
#include <string>
#include <vector>

#include "runner/exchange/export_metrics.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// The folder `output`: EXPERIMENT/meta.yaml, EXPERIMENT/RUN/meta.yaml, and below RUN the folders params, tags and metrics with a file
/// for each (mlflow/store/tracking/file_store.py). Each group of runs is an experiment; runs without one are in "Default". The id of a
/// run is a digest of its id here, which the tag runner.run has. Names are those of mlflow_name(); where two become the same, or one
/// is a folder of the other, the later one gets a number. The tag runner.metric.NAME has the name here, as that of the logger does.
ExportedMetrics export_mlflow(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output);

}  // namespace runner
