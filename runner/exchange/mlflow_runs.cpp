// MLflow's stores as runs: the SQLite store (mlflow/store/tracking/dbmodels/models.py), and what both stores have in common.
#include <cmath>
#include <limits>

#include "runner/base/text.hpp"
#include "runner/exchange/mlflow_parts.hpp"
#include "runner/ledger/source_errors.hpp"

namespace runner {

std::string status_of_mlflow(const std::string& status) {
  static const std::map<std::string, std::string> words = {{"FINISHED", "finished"},
                                                           {"FAILED", "failed"},
                                                           {"KILLED", "interrupted"},
                                                           {"RUNNING", "lost"},
                                                           {"SCHEDULED", "lost"}};
  const auto found = words.find(status);
  return found == words.end() ? "lost" : found->second;
}

void add_mlflow_tag(ForeignRun& run, const std::string& key, const std::string& value) {
  const std::string own_tag = "runner.tag.";
  if (key == "mlflow.note.content") run.notes = value;
  if (key == "mlflow.runName" && run.name.empty()) run.name = value;
  if (key == "runner.group") run.group = value;
  // The name of a tag may have characters that MLflow refuses; its value has all of it.
  if (key.starts_with(own_tag))
    run.tags.push_back(value.empty() || value == "true" ? key.substr(own_tag.size()) : value);
  if (!key.starts_with("mlflow.") && !key.starts_with("runner."))
    run.tags.push_back(value.empty() ? key : key + "=" + value);
}

std::string metric_of_mlflow(const std::string& name, const std::map<std::string, std::string>& tags) {
  const auto original = tags.find("runner.metric." + name);
  return original == tags.end() || original->second.empty() ? name : original->second;
}

int64_t add_mlflow_metric(ForeignRun& run, const std::string& name,
                          const std::vector<std::pair<int64_t, double>>& values) {
  // Metrics that are logged without a step all have step 0: their order is their step.
  const bool unnumbered = values.size() > 1 && values.front().first == 0 && values.back().first == 0;
  int64_t left_out = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [step, value] = values[i];
    if (!unnumbered && i + 1 < values.size() && values[i + 1].first == step)
      ++left_out;
    else
      run.points.push_back({.name = name, .step = unnumbered ? static_cast<int64_t>(i) : step, .value = value});
  }
  return left_out;
}

void add_mlflow_run(ForeignRuns& found, ForeignRun run, const std::string& experiment) {
  if (!run.ended) run.ended = run.started;
  if (experiment != "Default" && run.group.empty()) run.group = experiment;
  if (run.name.empty()) run.name = run.origin;
  found.runs.push_back(std::move(run));
}

void note_left_out(ForeignRuns& found, int64_t deleted_runs, int64_t values) {
  if (deleted_runs > 0)
    found.notes.push_back(fmt::format("left out: {} that {} deleted in MLflow", counted(deleted_runs, "run"),
                                      deleted_runs == 1 ? "was" : "were"));
  if (values > 0)
    found.notes.push_back(
        fmt::format("left out: {}, because the same step has a later value", counted(values, "value")));
}

namespace {

/// Infinities are stored as the greatest number, and NaN has a column.
double number_of(double value, bool is_nan) {
  constexpr double greatest = std::numeric_limits<double>::max();
  if (is_nan) return std::nan("");
  if (value >= greatest) return INFINITY;
  return value <= -greatest ? -INFINITY : value;
}

int64_t read_metrics(sqlite::Database& store, ForeignRun& run, const std::map<std::string, std::string>& tags) {
  int64_t left_out = 0;
  std::map<std::string, std::vector<std::pair<int64_t, double>>> metrics;
  auto rows = store.query(
      "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY key, step, timestamp", run.origin);
  while (rows.step())
    metrics[rows.text(0)].emplace_back(rows.integer(1), number_of(rows.real(2), rows.integer(3) != 0));
  for (const auto& [name, values] : metrics) left_out += add_mlflow_metric(run, metric_of_mlflow(name, tags), values);
  return left_out;
}

ForeignRuns read_mlflow_database(const fs::path& file) {
  sqlite::Database store(file, sqlite::Access::existing);
  store.execute("PRAGMA query_only = ON");
  ForeignRuns found;
  const int64_t deleted = store.integer("SELECT count(*) FROM runs WHERE lifecycle_stage = 'deleted'");
  auto rows = store.query(
      "SELECT run_uuid, ifnull(runs.name, ''), ifnull(status, ''), start_time, end_time, ifnull(experiments.name, '') "
      "FROM runs LEFT JOIN experiments USING (experiment_id) WHERE runs.lifecycle_stage = 'active' ORDER BY "
      "start_time, run_uuid");
  int64_t left_out = 0;
  while (rows.step()) {
    constexpr double milliseconds = 1000;
    ForeignRun run{.origin = rows.text(0), .name = rows.text(1), .status = status_of_mlflow(rows.text(2))};
    run.started = rows.real(3) / milliseconds;
    if (!rows.is_null(4)) run.ended = rows.real(4) / milliseconds;
    auto params = store.query("SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", run.origin);
    while (params.step()) set_parameter(run.config, params.text(0), params.text(1));
    std::map<std::string, std::string> tags;
    auto tag_rows = store.query("SELECT key, ifnull(value, '') FROM tags WHERE run_uuid = ?", run.origin);
    while (tag_rows.step()) tags[tag_rows.text(0)] = tag_rows.text(1);
    for (const auto& [key, value] : tags) add_mlflow_tag(run, key, value);
    left_out += read_metrics(store, run, tags);
    add_mlflow_run(found, std::move(run), rows.text(5));
  }
  note_left_out(found, deleted, left_out);
  return found;
}

}  // namespace

ForeignRuns read_mlflow_runs(const fs::path& path) {
  if (is_mlflow_folder(path)) return read_mlflow_folder(path);
  if (is_mlflow_folder(path / "mlruns")) return read_mlflow_folder(path / "mlruns");
  const fs::path file = fs::is_directory(path) ? path / "mlflow.db" : path;
  if (!fs::exists(file)) throw usage_error("{} has no store of MLflow (mlflow.db or mlruns)", path.string());
  return reading_source(file, "a store of MLflow (mlflow.db)", [&] { return read_mlflow_database(file); });
}

}  // namespace runner
