// Sweeps in the ledger: who runs them, their trials, and the history that their methods are rebuilt from.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/ledger/facts.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

struct NewSweep {
  std::string name;
  uint64_t seed = 0;
  nlohmann::json space;  ///< the sweep's file and its path
  std::string recipe;    ///< text of the recipe that trials are made from; also kept as recipe.toml in the folder
};

struct SweepRow {
  std::string id, name;
  std::string status;   ///< running, finished, failed, interrupted; lost: running, but its process is gone
  std::string message;  ///< why it ended
  uint64_t seed = 0;
  double started = 0;           ///< Unix seconds
  std::optional<double> ended;  ///< of a lost sweep: its last heartbeat
  double seconds = 0;           ///< it has run, all attempts together
  std::string folder;           ///< absolute or relative to the working directory, as the ledger's home is
  nlohmann::json space;
  ProcessIdentity owner;  ///< who ran it last
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
  // Of its newest run; empty before it has one.
  std::string run, run_status, run_message;
  std::string run_failure;  ///< kind of its failure (launch/events.hpp); empty: it has not failed, or did not say
  std::optional<int64_t> run_exit_code;
};

nlohmann::json to_json(const TrialRow& row);

/// How a trial stands at its end.
struct TrialEnd {
  std::string status;
  std::optional<double> value;
  int64_t step = 0;
  std::string reason, message;
};

struct MetricSummary {
  int64_t step = 0;  ///< of the last point
  double last = 0, min = 0, max = 0;
};

/// A connection of its own. What changes something is one transaction, in order with every other: after a kill or a
/// power failure the file shows a state that was. Throws Error(environment) naming the file.
class Sweeps {
 public:
  explicit Sweeps(const std::string& home, Ledger::Mode mode);
  ~Sweeps();

  /// Commits the row, owned by this process, makes sweeps/<id> with recipe.toml in it, and returns the id.
  std::string begin(const NewSweep& sweep);
  /// Makes this process the owner. Throws Error(usage) where another one runs it.
  void claim(const std::string& sweep);
  /// Replaces the sweep's file, repaired.
  void set_space(const std::string& sweep, const nlohmann::json& space);
  /// The sweep's process is alive, and has run it for `seconds` in all.
  void heartbeat(const std::string& sweep, double seconds);
  /// finished | failed | interrupted. Running trials become waiting.
  void end(const std::string& sweep, const std::string& status, const std::string& message, double seconds);

  void propose(const std::string& sweep, int64_t trial, const nlohmann::json& parameters, const nlohmann::json& entry);
  /// The trial is about to run.
  void start(const std::string& sweep, int64_t trial, const std::string& slot);
  void report(const std::string& sweep, int64_t trial, const nlohmann::json& entry);
  void finish(const std::string& sweep, int64_t trial, const TrialEnd& end, const nlohmann::json& entry);

  std::vector<SweepRow> sweeps() const;  ///< newest last
  /// An id, "last", a name (its newest sweep), a unique prefix or suffix of an id. Throws Error(usage) with nearest
  /// names.
  SweepRow find(const std::string& text) const;
  std::vector<TrialRow> trials(const std::string& sweep) const;
  TrialRow trial(const std::string& sweep, int64_t number) const;
  /// How long its newest run has been trained, all attempts together since the trial last ended.
  double trial_seconds(const std::string& sweep, int64_t number) const;
  std::vector<std::pair<int64_t, nlohmann::json>> history(const std::string& sweep) const;  ///< (trial, entry)
  std::optional<MetricSummary> metric(const std::string& run, const std::string& name) const;
  std::vector<std::string> metric_names(const std::string& run) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
