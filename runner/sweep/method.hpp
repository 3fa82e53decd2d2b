// A method of search: asked for trials, told what came of them. Knows neither recipes nor processes nor clocks.
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
  /// Begins with the final checkpoint of this trial instead of fresh weights (pbt).
  std::optional<int64_t> from_trial = {};
  /// Ends at this step instead of the recipe's train.max_steps (pbt).
  std::optional<int64_t> until_step = {};
};

struct Proposal {
  enum class Kind { trial, wait, done };
  Kind kind = Kind::done;  ///< wait: ask again once a running trial has ended
  Trial trial = {};

  static Proposal of(Trial trial) { return {Kind::trial, std::move(trial)}; }
  static Proposal waiting() { return {Kind::wait}; }
};

/// How a trial ended.
struct Ending {
  enum class Kind { completed, pruned, failed };
  Kind kind = Kind::completed;
  /// Smaller is better, whatever the sweep's goal. Of a pruned trial: its last report. NaN: none.
  double value = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;         ///< that the value was reported at
  bool diverged = false;    ///< failed by NaN or out of memory: there is nothing good near this point
  std::string reason = "";  ///< of a failed trial: the class of the failure (failure.hpp)
};

enum class Verdict { go_on, stop };

/// Deterministic: two methods made alike and called alike, in the same order, answer alike. So a method has no state to
/// save: a sweep is resumed by making it anew and repeating every call that was recorded (Search::replay).
class Method {
 public:
  virtual ~Method() = default;

  /// The next trial; its number is `number`. Throws Error(usage) where constraints leave nothing.
  virtual Proposal propose(int64_t number) = 0;
  /// Takes a recorded proposal as its own without making it anew, where that takes long and the state of the method
  /// does not depend on it; false: propose() is to be called. Enough must be left for propose() to show another
  /// version.
  virtual bool adopt(const Trial& /*recorded*/) { return false; }
  /// Whether report() is to be called for this trial now; other reports mean nothing to the method.
  virtual bool wants(int64_t /*trial*/, int64_t /*step*/) const { return false; }
  /// `value`: smaller is better, NaN is worst. A trial told to stop will end as pruned.
  virtual Verdict report(int64_t /*trial*/, int64_t /*step*/, double /*value*/) { return Verdict::go_on; }
  /// Once for every trial, and once more for one that failed and was tried again: the last word holds.
  virtual void finished(const Trial& trial, const Ending& ending) = 0;
  /// How many trials there are in all, where the method itself knows.
  virtual std::optional<int64_t> count() const { return std::nullopt; }
  /// Throws the error of an earlier call of finished() or report(). Those do not throw, so that their events are
  /// recorded first.
  virtual void check() {}
  /// Set while a history is replayed: output that was printed before is not printed again.
  virtual void set_replaying(bool /*replaying*/) {}
  /// Why the method may give another answer to the same calls.
  virtual std::string why_other() const { return "the sweep was begun by another version of runner"; }
};

}  // namespace runner::sweep
