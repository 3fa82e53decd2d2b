// The ledger: one SQLite file that holds every run, attempt, metric, event and artifact. Only supervisors write it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// What is known of a run before its first step, or of a resumed one before it goes on.
struct NewRun {
  std::string name;
  std::vector<std::string> tags;
  std::string notes;
  std::string run_dir_root;   ///< the run's folder is made as ROOT/<id>
  std::string recipe_source;  ///< the TOML as the user gave it
  std::string resolved;       ///< resolved.toml
  nlohmann::json config;      ///< recipe_to_json
  nlohmann::json origins;
  nlohmann::json plan;  ///< chosen strategy and why
  std::string strategy;
  int64_t world_size = 1;
  std::vector<std::string> argv;
  std::string build_id;
  nlohmann::json git;   ///< {commit, branch, dirty, diff_hash} of the working directory, or null
  nlohmann::json host;  ///< name, kernel, cpu, memory, devices
  std::string sweep;    ///< that it is a trial of; empty: none
  int64_t trial = 0;    ///< its number there
};

struct MetricPoint {
  std::string name;
  int64_t step = 0;
  double value = 0;  ///< NaN and infinities are kept
};

struct RunRow {
  std::string id, name, status, strategy;
  double started = 0;                ///< Unix seconds
  std::optional<double> ended;       ///< of a lost run: its last activity
  int64_t steps = 0;                 ///< the greatest step that any metric, event or artifact spoke of
  std::optional<double> final_loss;  ///< the last point of "loss"
  std::vector<std::string> tags;
  std::string why;  ///< it ended, on one line; empty: it is running, or has done all that its recipe asks for
  /// The metric that the run is judged by, and its last point: checkpoint.monitor, or the loss where that has no point.
  std::string metric;
  std::optional<double> metric_value;
  std::string folder;  ///< of the run; it may have been deleted
};

/// As a row of `runner ls --json`.
nlohmann::json to_json(const RunRow& row);

/// JSON has neither NaN nor infinities: they become the strings "NaN", "Infinity" and "-Infinity" (as in protobuf's
/// mapping).
nlohmann::json json_number(double value);

/// Writer and reader. Writes are queued and committed at most 0.5 s apart by a background thread (BEGIN IMMEDIATE,
/// busy_timeout); begin_run, begin_attempt, finish_run, reopen_run and flush return once committed, safe from a power
/// failure. Reading sees what is committed. Many processes may write one ledger; within a process, one thread at a time
/// calls this. Throws Error(environment) naming the file. On a network filesystem, where a write-ahead log cannot be
/// shared, a rollback journal is used.
class Ledger {
 public:
  enum class Mode { read, write };
  /// `home` = .runner or RUNNER_HOME. Write mode creates and migrates the file. Read mode: a missing file is an empty
  /// ledger, an older schema is migrated too. A newer schema than ours is refused by name. Opening marks runs whose
  /// supervisor is gone (boot id, pid, start time; on another host: no heartbeat for 5 minutes) as lost, with their
  /// last activity as end; where the file cannot be written they are shown so all the same.
  Ledger(const std::string& home, Mode mode);
  ~Ledger();  ///< commits what is queued

  /// Commits the row, makes the run's folder, and returns its id (sortable by UTC start, short, unique, e.g.
  /// "20261121-065403-k3f9"; the last four characters are unique in the ledger). The run is this process's from now on.
  std::string begin_run(const NewRun& run);
  /// A new attempt (process group start) of a run: host, boot id, pid, start time. Points after `from_step` are
  /// dropped, and so are events and artifacts that came after the snapshot of that step: this attempt makes them again.
  /// Returns the attempt's number, from 1.
  int64_t begin_attempt(const std::string& run, const std::string& reason,
                        std::optional<int64_t> from_step = std::nullopt);
  void metrics(const std::string& run, std::vector<MetricPoint> points);
  /// An integer "step" among the fields counts towards the run's steps, here and in artifact(). An integer "saved" is
  /// the step of the newest snapshot before the event: begin_attempt() from that snapshot or an earlier one drops it.
  void event(const std::string& run, const std::string& kind, const nlohmann::json& fields);
  /// Checkpoints are artifacts of kind "checkpoint"; `path` is absolute, or relative to the run's folder; what
  /// lies in that folder is kept relative to it.
  /// `unless_known`: only where the run has none of that kind and path.
  void artifact(const std::string& run, const std::string& kind, const std::string& path, const nlohmann::json& fields,
                bool unless_known = false);
  /// Keeps a JSON value beside the row: "measured", "predicted".
  void annotate(const std::string& run, const std::string& key, const nlohmann::json& value);
  /// May be called as often as one likes; every other write of a run is a heartbeat too. Throws Error(environment) once
  /// another process has taken the run up (it was taken for lost); what this one writes is ignored from then on.
  void heartbeat(const std::string& run);
  /// Commits what was written so far at once, safe from a power failure, and then calls `done` on a thread of the
  /// ledger. Also called after a commit that failed (the records wait in memory then), but never once another process
  /// has taken the run up.
  void settle(const std::string& run, std::function<void()> done);
  /// finished | failed | interrupted | preempted.
  void finish_run(const std::string& run, const std::string& status, int exit_code, const std::string& message);
  /// resume: back to running, as this process's. The row tells from now on how it runs `again` (strategy, ranks,
  /// configs, plan, command line, code and host; what was measured is forgotten); its attempts keep what they ran.
  /// Name, tags, notes, folder and the recipe as first given stay. Throws Error(usage) when the run is still running,
  /// naming host and pid.
  void reopen_run(const std::string& run, const NewRun& again);
  void flush();

  std::vector<RunRow> runs() const;  ///< newest last
  /// An id, "last", a name (its newest run), a unique prefix or suffix of an id. Throws Error(usage) with nearest
  /// names.
  std::string find_run(const std::string& text) const;
  std::string run_dir(const std::string& run) const;
  /// Number -> the step that it went on from, of the attempts that have begun.
  std::map<int64_t, int64_t> attempts(const std::string& run) const;
  nlohmann::json show(const std::string& run) const;  ///< the object of `runner show --json`, without "schema"
  /// By step. Throws Error(usage) with the nearest name when the run has no such metric.
  std::vector<std::pair<int64_t, double>> points(const std::string& run, const std::string& metric) const;
  std::vector<std::string> metric_names(const std::string& run) const;  ///< in alphabetical order

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The folder of the ledger: RUNNER_HOME; else .runner in the working directory; else that of the nearest parent folder
/// which has a ledger, as git finds its repository (not across file systems, nor from a folder that anybody may write);
/// else .runner again, to be made. A ledger found above is named once on stderr.
std::string ledger_home();

/// Whether processes on other machines may have files of `folder` open, or their pages cannot be shared: there a ledger
/// keeps a rollback journal.
bool on_network_filesystem(const std::string& folder);

}  // namespace runner
