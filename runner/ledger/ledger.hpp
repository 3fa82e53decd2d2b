// The ledger: one SQLite file that stores all runs, attempts, metrics, events and artifacts. Worker processes do not
// write to it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/ledger/edits.hpp"
#include "runner/ledger/filter.hpp"

namespace runner {

/// The description of a run before its first step, or of a resumed run before it continues.
struct NewRun {
  std::string name;  ///< empty: begin_run() chooses a memorable_name(), reopen_run() keeps the name
  std::vector<std::string> tags;
  std::string notes;
  std::string group = {};     ///< empty: none
  std::string run_dir_root;   ///< the run's folder is created as ROOT/<id>
  std::string recipe_source;  ///< the user's TOML text
  std::string resolved;       ///< resolved.toml
  nlohmann::json config;      ///< result of recipe_to_json
  nlohmann::json origins;
  nlohmann::json plan;  ///< chosen strategy with reasons
  std::string strategy;
  int64_t world_size = 1;
  std::vector<std::string> argv;
  std::string build_id;
  nlohmann::json git;       ///< CodeState::git of the working directory; null if there is none or it is not known yet
  nlohmann::json host;      ///< name, kernel, cpu, memory, devices
  std::string sweep;        ///< id of the sweep that this run is a trial of; empty if it is none
  int64_t trial = 0;        ///< number of the trial in the sweep
  std::string parent = {};  ///< id of the run that this one came from; empty if there is none
  std::string parent_kind = {};                           ///< how, as in run_kinds.hpp
  nlohmann::json annotations = nlohmann::json::object();  ///< the first ones, see annotate(); reopen_run() ignores them
  /// For reopen_run(): the last attempt that the caller has seen; 0: none. Unset: any.
  std::optional<int64_t> last_attempt = {};
};

struct MetricPoint {
  std::string name;
  int64_t step = 0;
  double value = 0;     ///< may be NaN or infinite
  bool at_end = false;  ///< recorded after the last step; begin_attempt() with `from_step` deletes it
};

struct RunRow {
  std::string id, name, status, strategy;
  double started = 0;                          ///< Unix seconds; 0: imported from a source that does not say it
  std::optional<double> ended;                 ///< Unix seconds; for a lost run, the time of its last activity
  double ended_attempts_seconds = 0;           ///< sum over the attempts that have ended
  std::optional<double> open_attempt_started;  ///< Unix seconds; empty if all attempts have ended
  int64_t steps = 0;                           ///< the greatest step of all metrics, events and artifacts
  std::optional<double> final_loss;            ///< the last point of "loss"
  std::vector<std::string> tags;
  std::string why;  ///< the reason why it ended, one line; empty if it is running or completed normally
  /// The metric named by checkpoint.monitor and its last value, or the loss if that metric has no points.
  std::string metric;
  std::optional<double> metric_value;
  std::string folder;  ///< the run's folder, which may have been deleted
  std::string group;   ///< empty: none
  bool archived = false, deleted = false;
  std::vector<nlohmann::json> cells;  ///< the values of the columns that were asked for; null: the run has none
};

/// A metric of a run; NaN values count only as the last one.
struct MetricSummary {
  int64_t step = 0;  ///< of the last point
  double last = 0, min = 0, max = 0;
  double best = 0;  ///< of the finite values; NaN: there is none
};

/// A reading of the machine while a run trained: over all readings of one name.
struct SystemSummary {
  int64_t count = 0;
  double mean = 0, min = 0, max = 0;
};

/// The time that the run's attempts took together, without the pauses between them; NaN if the run's source does not say when it
/// started (RunRow::started is 0).
double seconds_taken(const RunRow& row, double now);

/// A row of `runner ls --json`.
nlohmann::json to_json(const RunRow& row);

/// Represents NaN and infinities, which JSON lacks, by the strings "NaN", "Infinity" and "-Infinity" (as protobuf's
/// JSON mapping does).
nlohmann::json json_number(double value);

/// Writes and reads the ledger. Writes are queued, and a background thread commits them within 0.5 s (BEGIN IMMEDIATE,
/// busy_timeout). begin_run, begin_attempt, finish_run, reopen_run and flush return after the commit, and their data
/// survives a power failure. Reads see committed data only. Several processes may write one ledger at the same time;
/// within a process, only one thread at a time may use this class. Throws Error(environment) with the file. A rollback
/// journal is used on network filesystems, because a write-ahead log cannot be shared there.
class Ledger {
 public:
  enum class Mode { read, write };
  /// `home` = .runner or RUNNER_HOME. Write mode creates and migrates the file. In read mode, a missing file is an
  /// empty ledger; an older schema is migrated too. A newer schema is only read, and refused in write mode. Opening marks runs whose
  /// supervisor is gone (see is_gone()) as lost; their last activity becomes their end. If the file cannot be written, they are only
  /// shown as lost.
  Ledger(const std::string& home, Mode mode);
  ~Ledger();  ///< commits the queued changes

  /// Commits the row, creates the run's folder, and returns the run's id, e.g. "20261121-065403-k3f9": UTC time of the
  /// start (for sorting), then four characters that are unique in the ledger. This process owns the run afterwards.
  /// Secret values (runner/base/secrets.hpp) are not stored: "***" stands for them, here and in all later records.
  std::string begin_run(const NewRun& run);
  /// The row as it is stored: without the secrets that it contains (base/secrets.hpp).
  NewRun without_secrets(NewRun row) const;
  /// Records that a new attempt of a run starts (its ranks are started): host, boot id, pid, start time. With
  /// `from_step`, deletes the points after that step and the events and artifacts after its snapshot, because this
  /// attempt produces them again. If the snapshot has the results of a completion of its step (`completed`), the
  /// records of the completion stay. Returns the attempt's number, from 1.
  int64_t begin_attempt(const std::string& run, const std::string& reason,
                        std::optional<int64_t> from_step = std::nullopt, bool completed = false);
  void metrics(const std::string& run, std::vector<MetricPoint> points);
  /// Readings of the machine at this moment: names as in SystemReading (devices/system_reader.hpp), and values. Values that
  /// are not finite are left out.
  void system_samples(const std::string& run, std::vector<std::pair<std::string, double>> values);
  /// An integer field "step" raises the run's step count, here and in artifact(). A field "saved" is the step of the
  /// newest snapshot before the event, STEP - 0.5 while a resumed run completes STEP: begin_attempt() from that
  /// snapshot or an earlier one deletes the event.
  void event(const std::string& run, const std::string& kind, const nlohmann::json& fields);
  /// Checkpoints are artifacts of kind "checkpoint". `path` is absolute or relative to the run's folder; a path inside
  /// that folder is stored relative to it. `unless_known`: does nothing if the run already has an artifact of that kind
  /// and path.
  void artifact(const std::string& run, const std::string& kind, const std::string& path, const nlohmann::json& fields,
                bool unless_known = false);
  /// Stores a JSON value under `key` in the run's row, e.g. "measured" or "predicted".
  void annotate(const std::string& run, const std::string& key, const nlohmann::json& value);
  /// Stores a text once for all runs and returns its digest, with which kept() finds it. It is committed before or with the
  /// next change, so that the change may name the digest.
  std::string keep(const std::string& text);
  std::optional<std::string> kept(const std::string& digest) const;
  /// Sets CodeState::git of a run and of its attempt that this process owns, because git may answer after begin_run().
  void code(const std::string& run, const nlohmann::json& git);
  /// Cheap, may be called often; every other write to a run is a heartbeat too. Throws Error(environment) if another
  /// process has resumed the run because it was considered lost. From then on, writes of this process are ignored.
  void heartbeat(const std::string& run);
  /// While the result exists, reads wait only briefly for other processes. It must not outlive this object.
  [[nodiscard]] std::shared_ptr<void> brief_reads() const;
  /// Whether another process has resumed a run that this process began or reopened and has not finished.
  bool taken_up(const std::string& run) const;
  /// Commits everything queued so far, so that it survives a power failure, and then calls `done` on the background
  /// thread. `done` is also called if the commit fails (the records then stay in memory), but not if another process
  /// has resumed the run.
  void settle(const std::string& run, std::function<void()> done);
  /// `status`: finished | failed | interrupted | preempted. If the ledger cannot be written, tries again for `patience`
  /// before it throws: records that are still queued would be lost. A run that was stopped (interrupted, preempted) does not wait longer
  /// than seconds for other processes: its record then goes to a spool (spool.hpp), which the next command adds.
  void finish_run(const std::string& run, const std::string& status, int exit_code, const std::string& message,
                  std::chrono::seconds patience = {});
  /// For `resume`: sets the run to running, owned by this process, and removes "measured". begin_attempt() then replaces name, tags,
  /// notes, group, strategy, ranks, configs, plan, command line, code and host in the run's row by those of `again`: a process that is
  /// killed before it leaves the settings with which the run was trained. Earlier attempts keep their values. Folder and the original
  /// recipe stay, and so do edits of name, tags, notes and group (texts_after_edits()). Returns the name that the run will have.
  /// Throws Error(usage) with host and pid if the run is still running.
  std::string reopen_run(const std::string& run, const NewRun& again);
  /// Restores the values that a first begin_attempt() after reopen_run() replaced, and "predicted". What the attempt has done
  /// stays: "measured" and "start". Does nothing if there are no such values or the run is running.
  void put_back(const std::string& run);
  void flush();
  /// Edits runs, also running ones, and returns how many were changed; each change is in the audit trail. Needs no write
  /// mode. Returns after the commit; either all edits are made or none. Throws Error(usage) for
  /// a name or tag that is not allowed.
  int edit(const std::vector<std::string>& runs, const RunEdit& edit);

  std::vector<RunRow> runs() const;  ///< all of them, newest last
  /// The runs that match a filter, in its order, with the values of `columns`. Throws FilterError for names that no run has.
  std::vector<RunRow> runs(const RunFilter& filter, const RunColumns& columns = {}) const;
  /// Returns the id for a text: an id, "last" (the newest training of this ledger, or else the
  /// newest run, of those that are not archived or in the trash), a name (its newest run), or a
  /// unique prefix of an id or its end after the last "-", or a prefix of a name. Runs in the trash are refused by name or end
  /// before prefixes count. Throws Error(usage) with the nearest names.
  std::string find_run(const std::string& text) const;
  std::string run_dir(const std::string& run) const;
  RunRow row(const std::string& run) const;             ///< without cells
  nlohmann::json config(const std::string& run) const;  ///< of `show`, without the rest
  nlohmann::json origins(const std::string& run) const;
  std::map<std::string, MetricSummary> summaries(const std::string& run) const;
  /// The points of the run's last `count` steps: step -> metric -> value.
  std::map<int64_t, std::map<std::string, double>> last_rows(const std::string& run, int64_t count) const;
  /// Attempts that have begun: number -> the step that the attempt started from.
  std::map<int64_t, int64_t> attempts(const std::string& run) const;
  /// The completions at `cursor`, a position in the text of a filter.
  FilterCompletions complete_filter(const std::string& text, size_t cursor) const;
  nlohmann::json show(const std::string& run) const;  ///< the object of `runner show --json`, without "schema"
  /// (step, value), sorted by step. Throws Error(usage) with the nearest name if the run has no such metric.
  std::vector<std::pair<int64_t, double>> points(const std::string& run, const std::string& metric) const;
  /// The value with the greatest step; nullopt if the run has no such metric.
  std::optional<double> last_value(const std::string& run, const std::string& metric) const;
  std::vector<std::string> metric_names(const std::string& run) const;  ///< in alphabetical order
  /// (Unix seconds, value) of a reading of the machine, sorted by time. Throws Error(usage) with the nearest name if the
  /// run has none of that name.
  std::vector<std::pair<double, double>> system_curve(const std::string& run, const std::string& name) const;
  /// system_curve() over the seconds that the run's attempts took until then, without the pauses between them; in milliseconds' steps.
  std::vector<std::pair<double, double>> system_over_seconds(const std::string& run, const std::string& name) const;
  std::map<std::string, SystemSummary> system_summaries(const std::string& run) const;
  std::vector<std::string> system_names(const std::string& run) const;  ///< in alphabetical order
  std::vector<std::string> metric_names() const;                        ///< of all runs, in alphabetical order

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The folder of the ledger: RUNNER_HOME if set; otherwise .runner in the working directory if it exists; otherwise
/// .runner of the nearest parent folder that has one, also if it is still empty; otherwise .runner in the working
/// directory, not created yet. The search ends at the boundary of the filesystem and skips folders that all users may
/// write. A ledger found in a parent folder is reported once on stderr.
std::string ledger_home();

/// Whether `folder` is on a filesystem where other machines may open the same files, or where memory maps cannot be
/// shared. A ledger uses a rollback journal there.
bool on_network_filesystem(const std::string& folder);

}  // namespace runner
