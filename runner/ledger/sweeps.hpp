// Sweeps in the ledger: their owner process, their trials, and the history from which their methods are rebuilt.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/ledger/ledger.hpp"
#include "runner/ledger/process_identity.hpp"

namespace runner {

struct NewSweep {
  std::string name;
  uint64_t seed = 0;
  nlohmann::json space;  ///< content and path of the sweep's file, for the ledger without secrets
  std::string recipe;    ///< text of the recipe that trials are made from, for recipe.toml in the folder
  /// The recipe without secrets, for the ledger. If it differs, only the user can read recipe.toml.
  std::string recorded_recipe = recipe;
  /// The content of the sweep's file, if space["source"] has it without secrets: it is in the folder's file `source`, which only the
  /// user can read.
  std::string source = "";
};

struct SweepRow {
  std::string id, name;
  std::string
      status;  ///< running, finished, failed, interrupted; lost: still marked as running, but its process is gone
  std::string message;  ///< the reason why it ended
  uint64_t seed = 0;
  double started = 0;           ///< Unix seconds
  std::optional<double> ended;  ///< Unix seconds; for a lost sweep, its last heartbeat
  double seconds = 0;           ///< total run time of all attempts
  std::string folder;           ///< absolute or relative to the working directory, like the ledger's home
  nlohmann::json space;
  ProcessIdentity owner;  ///< the process that ran it last
};

struct TrialRow {
  int64_t number = 0;
  std::string status;  ///< waiting, running, finished, pruned, failed
  nlohmann::json parameters;
  std::optional<double> value;
  int64_t step = 0;
  std::string reason, message;  ///< of a failure
  std::string slot;
  int64_t tries = 0;
  std::optional<double> started, ended;
  // The trial's newest run; empty before there is one.
  std::string run, run_status, run_message;
  std::string run_failure;  ///< kind of its failure (launch/events.hpp); empty if it has not failed or reported no kind
  std::optional<int64_t> run_exit_code;
};

nlohmann::json to_json(const TrialRow& row);

/// The result of a trial.
struct TrialEnd {
  std::string status;
  std::optional<double> value;
  int64_t step = 0;
  std::string reason, message;
};

/// A trial that is proposed when its sweep begins.
struct FirstTrial {
  int64_t number = 0;
  nlohmann::json parameters, entry;  ///< entry: of the history
};

/// Reads and writes sweeps over a separate connection. Each change is one transaction, and transactions keep their order:
/// after a kill or a power failure, the file contains an earlier consistent state. Throws Error(environment) with the file.
class Sweeps {
 public:
  explicit Sweeps(const std::string& home, Ledger::Mode mode);
  ~Sweeps();

  /// Commits the row, owned by this process, creates sweeps/<id> with recipe.toml in it, and returns the id.
  std::string begin(const NewSweep& sweep);
  /// The id of the newest sweep of this name that began in this ledger; nothing if there is none.
  std::optional<std::string> named(const std::string& name) const;
  /// Like begin(), for a sweep that several processes share: it begins with all its trials, and others may write it, too. Returns the
  /// id of the sweep of this name if there is one, so that only the first of several processes that call this begins a sweep.
  std::string begin_shared(const NewSweep& sweep, const std::vector<FirstTrial>& trials);
  /// From now on this process trains a trial of a shared sweep, and others train other trials; a SweepLock keeps them apart. One of
  /// them is recorded as the owner: heartbeat() replaces one that is gone. end() ends the trial, and the sweep with its last trial.
  void join(const std::string& sweep, int64_t trial);
  /// Makes this process the owner. Throws Error(usage) if another process runs the sweep.
  void claim(const std::string& sweep);
  /// Replaces the stored content of the sweep's file, after the user has repaired it.
  void set_space(const std::string& sweep, const nlohmann::json& space, const std::string& source = "");
  /// Records that the sweep's process is alive, and that the total run time is `seconds`.
  void heartbeat(const std::string& sweep, double seconds);
  /// `status`: finished | failed | interrupted. The status of running trials becomes `waiting`.
  void end(const std::string& sweep, const std::string& status, const std::string& message, double seconds);
  /// Whether end() of this process has ended a shared sweep with its last trial. Of the processes that share it, only one has.
  bool completed() const;

  void propose(const std::string& sweep, int64_t trial, const nlohmann::json& parameters, const nlohmann::json& entry);
  /// Records that the trial is about to run.
  void start(const std::string& sweep, int64_t trial, const std::string& slot);
  void report(const std::string& sweep, int64_t trial, const nlohmann::json& entry);
  void finish(const std::string& sweep, int64_t trial, const TrialEnd& end, const nlohmann::json& entry);

  std::vector<SweepRow> sweeps() const;  ///< newest last
  /// Finds a sweep by id, "last", name (its newest sweep), or unique prefix of an id or its end (run_id.hpp). Throws Error(usage) with the
  /// nearest names.
  SweepRow find(const std::string& text) const;
  std::vector<TrialRow> trials(const std::string& sweep) const;
  TrialRow trial(const std::string& sweep, int64_t number) const;
  /// Seconds for which the trial's newest run has been trained, in all attempts since the trial last ended.
  double trial_seconds(const std::string& sweep, int64_t number) const;
  std::vector<std::pair<int64_t, nlohmann::json>> history(const std::string& sweep) const;  ///< (trial, entry)
  std::map<std::string, MetricSummary> summaries(const std::string& run) const;  ///< of a trial's run

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
