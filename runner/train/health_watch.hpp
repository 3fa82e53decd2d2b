// Watches a training for signs of trouble: losses that are not finite, loss spikes and stalled steps. Rank 0 reports each as an event,
// with the samples of the step.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runner/config/recipe.hpp"
#include "runner/data/loader.hpp"
#include "runner/launch/events.hpp"
#include "strategies/engine/engine.hpp"

namespace runner {

/// Recognises steps that do not end: a thread looks at the step in progress, because the training thread is the one that hangs.
class StallWatch {
 public:
  struct Options {
    double factor = 10;  ///< of the median of the last steps; 0 turns it off
    std::chrono::duration<double> least{60};
    std::chrono::milliseconds look_every{1000};
  };
  struct Stall {
    int64_t step = 0;
    double seconds = 0;   ///< since the step began
    double expected = 0;  ///< the median
  };
  /// `report` is called on the thread, once for each step.
  StallWatch(Options options, std::function<void(const Stall&)> report);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;

  void step_begins(int64_t step);
  /// Validation and checkpoints, which follow, are not watched.
  void step_ends();

 private:
  void loop();
  double median() const;

  const Options options_;
  const std::function<void(const Stall&)> report_;
  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  bool stop_ = false, reported_ = false;
  int64_t step_ = 0;
  double begun_ = 0;  ///< steady_seconds(); 0: no step is in progress
  std::deque<double> seconds_;
  std::thread thread_;
};

/// Recognises losses that are far above those of the steps before.
/// Compares with the median of the last steps, in units of 1.4826 times the median absolute deviation from it, which is the standard
/// deviation of normal noise and is not changed by a few large values (Hampel, "The influence curve and its role in robust estimation",
/// 1974). A spike also has to be a tenth above the median, because losses may hardly vary. While the loss stays up, the spike is
/// reported once.
class LossWatch {
 public:
  /// `deviations`: 0 turns it off. `window`: steps.
  LossWatch(double deviations, int64_t window) : deviations_(deviations), window_(window) {}

  struct Spike {
    double expected = 0;    ///< the median
    double deviations = 0;  ///< above it
  };
  /// Takes the loss of the next step. NaN and infinities are ignored.
  std::optional<Spike> take(double loss);

  /// The window, for checkpoints.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  double deviations_;
  int64_t window_;
  std::deque<double> losses_;
  bool up_ = false;  ///< the last loss was far above
};

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
  /// Reports the 1st, 2nd, 4th ... of the validation losses that are not finite.
  void validated(int64_t step, double loss);
  /// The training ends: a note if the last validation loss, which is that of `step`, is not finite.
  void ended(int64_t step, double loss);

  /// The losses that later steps are compared with, for checkpoints.
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
