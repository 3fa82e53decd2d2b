// The ledger: one SQLite file that holds every run, attempt, metric, event and artifact. Only supervisors write it.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// What is known of a run before its first step.
struct NewRun {
  std::string name;
  std::vector<std::string> tags;
  std::string notes;
  std::string run_dir_root;       ///< the run's folder is made as ROOT/<id>
  std::string recipe_source;      ///< the TOML as the user gave it
  std::string resolved;           ///< resolved.toml
  nlohmann::json config;          ///< recipe_to_json
  nlohmann::json origins;
  nlohmann::json plan;            ///< chosen strategy and why
  std::string strategy;
  int64_t world_size = 1;
  std::vector<std::string> argv;
  std::string build_id;
  nlohmann::json git;             ///< {commit, branch, dirty, diff_hash} of the working directory, or null
  nlohmann::json host;            ///< name, kernel, cpu, memory, devices
  std::optional<std::string> resumed_from;  ///< run id
};

struct MetricPoint {
  std::string name;
  int64_t step = 0;
  double value = 0;  ///< NaN and infinities are kept
};

struct RunRow {
  std::string id, name, status, strategy;
  double started = 0;
  std::optional<double> ended;
  int64_t steps = 0;
  std::optional<double> final_loss;
  std::vector<std::string> tags;
};

/// Writer and reader. Writes are queued and committed at most 0.5 s apart by a background thread (BEGIN IMMEDIATE,
/// busy_timeout); begin_run, finish_run and flush return once committed. Throws Error(environment) naming the file.
class Ledger {
 public:
  enum class Mode { read, write };
  /// `home` = .runner or RUNNER_HOME. Creates and migrates the file in write mode; a newer schema than ours is refused by name.
  /// In read mode a missing file is an empty ledger. Opening marks runs whose supervisor is gone (boot id, pid, start time)
  /// as lost, with their last activity as end.
  Ledger(const std::string& home, Mode mode);
  ~Ledger();

  /// Commits the row and returns the run's id (sortable, short, unique, e.g. "20261121-065403-k3f9").
  std::string begin_run(const NewRun& run);
  /// A new attempt (process group start) of a run: host, boot id, pid, start time.
  int64_t begin_attempt(const std::string& run, const std::string& reason);
  void metrics(const std::string& run, std::vector<MetricPoint> points);
  void event(const std::string& run, const std::string& kind, const nlohmann::json& fields);
  void artifact(const std::string& run, const std::string& kind, const std::string& path, const nlohmann::json& fields);
  /// Keeps a JSON value beside the row: "measured", "predicted".
  void annotate(const std::string& run, const std::string& key, const nlohmann::json& value);
  void heartbeat(const std::string& run);
  /// finished | failed | interrupted | preempted.
  void finish_run(const std::string& run, const std::string& status, int exit_code, const std::string& message);
  /// resume: back to running.
  void reopen_run(const std::string& run);
  void flush();

  std::vector<RunRow> runs() const;  ///< newest last
  /// An id, a unique prefix or suffix of one, a name (its newest run), "last". Throws Error(usage) with nearest names.
  std::string find_run(const std::string& text) const;
  std::string run_dir(const std::string& run) const;
  nlohmann::json show(const std::string& run) const;  ///< as house.md fixes `runner show --json`, without "schema"
  std::vector<std::pair<int64_t, double>> points(const std::string& run, const std::string& metric) const;
  std::vector<std::string> metric_names(const std::string& run) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// RUNNER_HOME, or .runner in the working directory.
std::string ledger_home();

}  // namespace runner
