// The reports of a training to the supervisor about its steps and its end. Rank 0 emits the events.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/config/recipe.hpp"
#include "runner/launch/events.hpp"
#include "runner/train/due.hpp"
#include "strategies/engine/engine.hpp"

namespace runner {

/// Why a step whose loss or gradients are not finite ends the run, and what helps.
std::string nonfinite_message(int64_t step, const StepResult& result);

class TrainingReport {
 public:
  TrainingReport(const Recipe& recipe, EventSink& events, int rank) : recipe_(recipe), events_(events), rank_(rank) {}

  void note(const std::string& message);
  /// Counts the step if train.on_nonfinite = "skip" skipped it. Emits an event when the count is a power of two, and
  /// one for the first step of this attempt.
  void count(int64_t step, const StepResult& result);
  /// Keeps the record of a step until the next one. Emits it at once if `now` is true.
  void keep(nlohmann::json step, bool now);
  /// Emits the record of the last step if it was not emitted: why a training ends is reported after its last step.
  void emit_kept();
  /// Emits the reason if training ends before its last step, and a note if no step had an effect. `schedule_step`: the
  /// steps of the schedule that the updates count as.
  void early_end(int64_t step, double schedule_step, Course course, const std::string& reason_of_hook);
  /// `trained`: how many tokens, or samples.
  void finished(int64_t step, double final_loss, const std::pair<std::string, int64_t>& trained, double train_seconds);

  /// Steps that were skipped because they were not finite, in all attempts.
  int64_t skipped() const { return skipped_; }
  void set_skipped(int64_t steps) { skipped_ = steps; }

 private:
  const Recipe& recipe_;
  EventSink& events_;
  int rank_;
  nlohmann::json kept_;  ///< null if the record of the last step was emitted
  int64_t skipped_ = 0;
  bool updated_ = false;  ///< a step of this attempt has changed parameters
  bool stepped_ = false;  ///< a step of this attempt has ended
};

}  // namespace runner
