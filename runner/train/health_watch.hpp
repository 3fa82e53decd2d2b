// Watches a training for signs of trouble: losses that are not finite, loss spikes and stalled steps. Rank 0 reports each as an event,
// with the samples of the step.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "runner/config/recipe.hpp"
#include "runner/data/loader.hpp"
#include "runner/launch/events.hpp"
#include "runner/train/loss_watch.hpp"
#include "runner/train/stall_watch.hpp"
#include "strategies/engine/engine.hpp"

namespace runner {

class HealthWatch {
 public:
  /// Does nothing on ranks other than 0.
  HealthWatch(const Recipe& recipe, const Dataset& data, EventSink& events, int rank);

  /// `at`: where its samples begin, unless an epoch ends there. As many as those of the step before are expected.
  void step_begins(int64_t step, const DataPosition& at);
  /// The step has its batch.
  void batch_loaded(const StepBatch& batch) { set_batch(batch.at, batch.global_rows); }
  /// `step`: the one that began last.
  void step_ends(int64_t step, const StepResult& result);
  /// A step that stops the training, because its loss or a gradient is not finite. `message`: of the error.
  void not_finite(int64_t step, const StepResult& result, const std::string& message);
  /// Of many losses that are not finite, the 1st, 2nd, 4th ... are reported.
  void validated(int64_t step, double loss);

  /// What later steps are compared with, for checkpoints.
  nlohmann::json state() const { return losses_.state(); }
  void restore(const nlohmann::json& state) { losses_.restore(state); }

 private:
  void set_batch(const DataPosition& at, int64_t rows);
  /// The fields of an event: the step, its place in the data, and the samples there, at most 1,024 of them.
  nlohmann::json fields(int64_t step, const std::string& message) const;
  void report_stall(const StallWatch::Stall& stall);

  const Recipe& recipe_;
  const Dataset& data_;
  EventSink& events_;
  const bool watches_;
  LossWatch losses_;
  int64_t not_finite_ = 0;                                 ///< steps of this attempt that were skipped
  int64_t validations_not_finite_ = 0;                     ///< of this attempt
  std::atomic<int64_t> epoch_ = 0, first_ = 0, rows_ = 0;  ///< of the step in progress; the stall's thread reads them
  std::unique_ptr<StallWatch> stalls_;                     ///< last: its thread uses the others
};

}  // namespace runner
