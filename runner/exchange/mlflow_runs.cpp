// MLflow's SQLite store as runs (mlflow/store/tracking/dbmodels/models.py).
#include <cmath>
#include <limits>
#include <map>

#include "runner/base/text.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner {

namespace {

/// Infinities are stored as the greatest number, and NaN has a column.
double number_of(double value, bool is_nan) {
  constexpr double greatest = std::numeric_limits<double>::max();
  if (is_nan) return std::nan("");
  if (value >= greatest) return INFINITY;
  return value <= -greatest ? -INFINITY : value;
}

std::string status_of(const std::string& status) {
  static const std::map<std::string, std::string> words = {{"FINISHED", "finished"},
                                                           {"FAILED", "failed"},
                                                           {"KILLED", "interrupted"},
                                                           {"RUNNING", "lost"},
                                                           {"SCHEDULED", "lost"}};
  const auto found = words.find(status);
  return found == words.end() ? "lost" : found->second;
}

void read_parameters(sqlite::Database& store, ForeignRun& run) {
  auto params = store.query("SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", run.origin);
  while (params.step()) set_parameter(run.config, params.text(0), params.text(1));
}

/// Tags of users become tags KEY=VALUE; some of MLflow's own have a place in the ledger.
void read_tags(sqlite::Database& store, ForeignRun& run) {
  auto tags = store.query("SELECT key, value FROM tags WHERE run_uuid = ? ORDER BY key", run.origin);
  while (tags.step()) {
    const std::string key = tags.text(0), value = tags.text(1);
    if (key == "mlflow.note.content") run.notes = value;
    if (key == "mlflow.runName" && run.name.empty()) run.name = value;
    if (!key.starts_with("mlflow.")) run.tags.push_back(key + "=" + value);
  }
}

/// Returns how many points were left out, because there is a later one of the same step.
int64_t read_metrics(sqlite::Database& store, ForeignRun& run) {
  int64_t left_out = 0;
  std::map<std::string, std::vector<std::pair<int64_t, double>>> metrics;
  auto rows = store.query(
      "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY key, step, timestamp", run.origin);
  while (rows.step())
    metrics[rows.text(0)].emplace_back(rows.integer(1), number_of(rows.real(2), rows.integer(3) != 0));
  for (const auto& [name, values] : metrics) {
    // Metrics that are logged without a step all have step 0: their order is their step.
    const bool numbered = values.size() > 1 && values.front().first == values.back().first;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& [step, value] = values[i];
      if (!numbered && i + 1 < values.size() && values[i + 1].first == step)
        ++left_out;
      else
        run.points.push_back({.name = name, .step = numbered ? static_cast<int64_t>(i) : step, .value = value});
    }
  }
  return left_out;
}

}  // namespace

ForeignRuns read_mlflow_runs(const fs::path& file) {
  sqlite::Database store(file, sqlite::Access::existing);
  store.execute("PRAGMA query_only = ON");
  ForeignRuns found;
  const int64_t deleted = store.integer("SELECT count(*) FROM runs WHERE lifecycle_stage = 'deleted'");
  if (deleted > 0)
    found.notes.push_back(fmt::format("{} that were deleted in MLflow are left out", counted(deleted, "run")));
  auto rows = store.query(
      "SELECT run_uuid, ifnull(runs.name, ''), ifnull(status, ''), start_time, end_time, ifnull(experiments.name, '') "
      "FROM runs LEFT JOIN experiments USING (experiment_id) WHERE runs.lifecycle_stage = 'active' ORDER BY "
      "start_time, run_uuid");
  int64_t left_out = 0;
  while (rows.step()) {
    constexpr double milliseconds = 1000;
    ForeignRun run{.origin = rows.text(0), .name = rows.text(1), .status = status_of(rows.text(2))};
    run.started = rows.real(3) / milliseconds;
    if (!rows.is_null(4)) run.ended = rows.real(4) / milliseconds;
    if (!run.ended) run.ended = run.started;
    if (rows.text(5) != "Default") run.group = rows.text(5);
    read_parameters(store, run);
    read_tags(store, run);
    left_out += read_metrics(store, run);
    if (run.name.empty()) run.name = run.origin;
    found.runs.push_back(std::move(run));
  }
  if (left_out > 0)
    found.notes.push_back(
        fmt::format("{} left out, because the same step has a later value", counted(left_out, "value")));
  return found;
}

}  // namespace runner
