// A sweep as a pure state machine: method, budget, stopping rules, and the history of all decisions.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/sweep/method.hpp"

namespace runner::sweep {

enum class Goal { min, max };

/// When to stop proposing trials. Running trials may then end normally.
struct Limits {
  std::optional<int64_t> trials = {};          ///< total number of proposals
  std::optional<double> target = {};           ///< a value that is good enough
  std::optional<int64_t> no_improvement = {};  ///< number of trials that ended after the best one
  std::optional<int64_t> failures = {};        ///< number of failed trials
};

/// One event of a sweep, as the ledger stores it.
struct HistoryEntry {
  enum class Kind { proposed, reported, ended };
  Kind kind;
  int64_t trial = 0;
  Trial proposal = {};          ///< for proposed
  int64_t step = 0;             ///< for reported and ended
  std::optional<double> value;  ///< as measured; none if there was no number
  bool stop = false;            ///< for reported: the method's verdict
  std::string status = "";      ///< for ended: finished, pruned, failed
  std::string reason = "";      ///< for failed: the class of the failure (failure.hpp)
};

nlohmann::json to_json(const HistoryEntry& entry);
HistoryEntry history_entry_from_json(const nlohmann::json& json);

HistoryEntry proposed(const Trial& trial);

struct TrialState {
  Trial trial;
  std::string status = "running";  ///< running, finished, pruned, failed
  std::optional<double> value = {};
  int64_t step = 0;
  std::string reason = "";
  bool stop_requested = false;
};

/// Every change is recorded as an entry before it has an effect. Replaying the entries gives the same state.
class Search {
 public:
  Search(std::unique_ptr<Method> method, Goal goal, Limits limits)
      : method_(std::move(method)), goal_(goal), limits_(limits) {}

  /// Replays a recorded entry. Throws Error(environment) with the trial's number if the method now gives another
  /// answer.
  void replay(const HistoryEntry& entry);
  /// Throws an error that occurred in the method since the last call.
  void check() { method_->check(); }

  /// The next trial. proposed() gives the entry to record.
  Proposal propose();
  /// Nothing if the method does not use reports.
  std::optional<HistoryEntry> report(int64_t trial, int64_t step, double value);
  /// `status`: finished, pruned or failed. NaN: no value.
  HistoryEntry end(int64_t trial, const std::string& status, double value, int64_t step, const std::string& reason);

  /// Why no more trials are proposed, in words. Empty if the sweep continues, or if the method itself has ended.
  std::string limit_reached() const;
  const std::map<int64_t, TrialState>& trials() const { return trials_; }
  /// The best finished trial. Pruned trials do not count.
  const TrialState* best() const;
  Goal goal() const { return goal_; }
  /// The total number of trials, if it is known.
  std::optional<int64_t> count() const;

 private:
  double minimized(double value) const { return goal_ == Goal::max ? -value : value; }
  void apply_end(const HistoryEntry& entry);
  void repeat(const HistoryEntry& entry);

  std::unique_ptr<Method> method_;
  Goal goal_;
  Limits limits_;
  std::map<int64_t, TrialState> trials_;
  std::optional<int64_t> best_;
  int64_t ended_since_best_ = 0, failures_ = 0;
  mutable std::optional<std::optional<int64_t>> count_;  ///< count(), which may walk a grid
};

}  // namespace runner::sweep
