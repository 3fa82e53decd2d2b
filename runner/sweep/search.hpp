// A sweep as a pure state machine: method, budget, rules to stop, and the history of everything that was decided.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/sweep/method.hpp"

namespace runner::sweep {

enum class Goal { min, max };

/// When to propose nothing more. What runs then is left to end.
struct Limits {
  std::optional<int64_t> trials = {};          ///< proposals in all
  std::optional<double> target = {};           ///< a value this good was reached
  std::optional<int64_t> no_improvement = {};  ///< so many trials ended since the best one did
  std::optional<int64_t> failures = {};        ///< so many trials failed
};

/// One thing that happened, as the ledger keeps it.
struct HistoryEntry {
  enum class Kind { proposed, reported, ended };
  Kind kind;
  int64_t trial = 0;
  Trial proposal = {};          ///< of proposed
  int64_t step = 0;             ///< of reported and ended
  std::optional<double> value;  ///< as measured; none: there was no number
  bool stop = false;            ///< of reported: the method's verdict
  std::string status = "";      ///< of ended: finished, pruned, failed
  std::string reason = "";      ///< of failed: its class (failure.hpp)
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
  bool told_to_stop = false;
};

/// What changes something is kept (as entries) before anything is done about it; replaying them gives the same state.
class Search {
 public:
  Search(std::unique_ptr<Method> method, Goal goal, Limits limits)
      : method_(std::move(method)), goal_(goal), limits_(limits) {}

  /// Repeats a kept entry. Throws Error(environment) where the method now answers otherwise, naming the trial.
  void replay(const HistoryEntry& entry);
  /// Throws what went wrong in the method since it was last asked.
  void check() { method_->check(); }

  /// Of a trial, proposed() is the entry to be kept.
  Proposal propose();
  /// Nothing where the method does not want to know.
  std::optional<HistoryEntry> report(int64_t trial, int64_t step, double value);
  /// `status`: finished, pruned or failed. NaN: no value.
  HistoryEntry end(int64_t trial, const std::string& status, double value, int64_t step, const std::string& reason);

  /// Why nothing more is proposed, in words; empty: it goes on, or the method itself is through.
  std::string limit_reached() const;
  const std::map<int64_t, TrialState>& trials() const { return trials_; }
  /// The best of what finished; pruned trials do not count.
  const TrialState* best() const;
  Goal goal() const { return goal_; }
  /// Of all trials, where that is known.
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
};

}  // namespace runner::sweep
