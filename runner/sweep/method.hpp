// A search method: proposes trials and receives their results. It does not depend on recipes, processes or clocks.
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/sweep/space.hpp"

namespace runner::sweep {

struct Trial {
  int64_t number = 0;  ///< from 0, in the order of proposals
  nlohmann::json parameters;
  /// Starts from the final checkpoint of this trial instead of initial weights (pbt).
  std::optional<int64_t> from_trial = {};
  /// Ends at this step instead of the recipe's train.max_steps (pbt).
  std::optional<int64_t> until_step = {};
};

struct Proposal {
  enum class Kind { trial, wait, done };
  Kind kind = Kind::done;  ///< wait: call propose() again once a running trial has ended
  Trial trial = {};

  static Proposal of(Trial trial) { return {Kind::trial, std::move(trial)}; }
  static Proposal waiting() { return {Kind::wait}; }
};

/// How a trial ended.
struct Ending {
  enum class Kind { completed, pruned, failed };
  Kind kind = Kind::completed;
  /// Smaller is better, whatever the sweep's goal. For a pruned trial: its last report. NaN: none.
  double value = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;         ///< the step of the value
  bool diverged = false;    ///< failed with NaN or out of memory: points near this one are bad, too
  std::string reason = "";  ///< for a failed trial: the class of the failure (failure.hpp)
};

enum class Verdict { go_on, stop };

/// Deterministic: the same arguments and the same calls in the same order give the same results. So a method has no
/// state to save: to resume a sweep, it is constructed again and every recorded call is repeated (Search::replay).
class Method {
 public:
  virtual ~Method() = default;

  /// The next trial; its number is `number`. Throws Error(usage) if the constraints reject all points.
  virtual Proposal propose(int64_t number) = 0;
  /// Accepts a recorded proposal in place of a call of propose(), if that call takes long and changes no state. Returns
  /// false if propose() must be called. Some proposals must be made again, so that a changed method is noticed.
  virtual bool adopt(const Trial& /*recorded*/) { return false; }
  /// Whether report() must be called for this trial now. The method does not use other reports.
  virtual bool wants(int64_t /*trial*/, int64_t /*step*/) const { return false; }
  /// `value`: smaller is better, NaN is worst. After Verdict::stop the trial ends as pruned.
  virtual Verdict report(int64_t /*trial*/, int64_t /*step*/, double /*value*/) { return Verdict::go_on; }
  /// Called once for each trial, and again if a failed trial is tried again; the last call counts.
  virtual void finished(const Trial& trial, const Ending& ending) = 0;
  /// The total number of trials, or `most` if it is greater, if the method determines it. May throw Error(usage).
  virtual std::optional<int64_t> count(std::optional<int64_t> /*most*/) const { return std::nullopt; }
  /// Throws the error of an earlier call of finished() or report(). Those do not throw, so that their events are
  /// recorded first.
  virtual void check() {}
  /// Set while a history is replayed: output that was printed before is not printed again.
  virtual void set_replaying(bool /*replaying*/) {}
  /// Why the method may give different results for the same calls.
  virtual std::string why_other() const { return "the sweep was started by another version of runner"; }
};

}  // namespace runner::sweep
