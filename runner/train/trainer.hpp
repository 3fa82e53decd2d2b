// The training loop of one rank: loads batches, runs steps, validates, saves checkpoints and emits events. All
// decisions are in the resolved recipe.
#pragma once
#include <atomic>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "runner/base/clock.hpp"
#include "runner/config/recipe.hpp"
#include "runner/data/loader.hpp"
#include "runner/launch/events.hpp"
#include "runner/train/checkpointer.hpp"
#include "runner/train/course.hpp"
#include "runner/train/due.hpp"
#include "runner/train/health_watch.hpp"
#include "runner/train/hooks/hooks.hpp"
#include "runner/train/profile.hpp"
#include "runner/train/training_report.hpp"
#include "strategies/contract/task_spec.hpp"
#include "strategies/engine/engine.hpp"

namespace runner {

struct TrainerSetup {
  const Recipe& recipe;  ///< resolved
  World& world;
  Engine& engine;
  const Dataset& train;
  const Dataset* validation = nullptr;
  Hooks& hooks;
  EventSink& events;
  fs::path run_dir;
  std::optional<TaskSpec> task = {};               ///< of the model
  nlohmann::json model_sizes = {};                 ///< what `runner export` makes the spec from, stored in checkpoints
  const std::atomic<bool>* stop = nullptr;         ///< set by the signal handler
  std::function<int64_t()> memory_bytes = {};      ///< peak of tensor bytes in use so far
  int64_t attempt = 1;                             ///< number of the attempt of the run
  nlohmann::json data_meaning = {};                ///< stored in checkpoints; rank 0 only
  std::map<std::string, double> group_rates = {};  ///< rates_by_group()
  bool accept_changed_data = false;  ///< a position after the data's end becomes the start of the next epoch
  nlohmann::json settings = {};      ///< settings_of_tensors(), stored in checkpoints; rank 0 only
  Profile* profile = nullptr;        ///< records what the parts of the training take; null: it is off
};

struct TrainerResult {
  int64_t steps = 0;
  double final_loss = 0;
  /// A stop request arrived before the end of the run, which includes the last validation. A checkpoint was published,
  /// except under fast_dev_run.
  bool stopped = false;
};

class Trainer {
 public:
  explicit Trainer(TrainerSetup setup);
  /// Continues from a checkpoint: parameters, optimizer, scaler, data position and states of hooks. Reads only what
  /// this rank needs. Throws Error(environment) if the checkpoint does not fit.
  void resume(const Checkpoint& checkpoint);
  /// Trains to the end, or until a hook or a signal stops it. Throws lua::HookError, and NonFiniteError if the loss is
  /// not finite and the recipe sets on_nonfinite = "stop". Before it throws these two, it finishes a checkpoint that is
  /// being written.
  TrainerResult run();

 private:
  enum Vote : uint32_t { vote_stop = 1, vote_checkpoint = 2, vote_time_over = 4 };

  Checkpointer::Calls checkpoint_calls();
  Loader::Options loader_options() const;
  SpanRecorder* spans() const { return setup_.profile ? &setup_.profile->spans() : nullptr; }
  void call_hooks(lua::Moment moment) {
    const SpanScope span(spans(), {Phase::hooks, "hooks"});
    setup_.hooks.call(moment, progress_);
  }
  /// Calls `setup` of the hooks once, before any other function of them.
  void set_up_hooks();

  // ---- the start
  /// Takes over step and data position, and plans the last step.
  void start_at(const TrainingStart& start);
  /// Takes over what the checkpoint says about this run's course.
  void continue_course(const TrainerState& state);
  /// If replicas differ: throws if the checkpoint has another number of them. If the engine has one model: notes that
  /// the replicas of ranks above 0 are not used.
  void check_replicas(const Checkpoint& checkpoint);
  /// Does what is left of the checkpoint's step.
  void complete_step();

  // ---- a step
  TrainerResult train();
  /// Trains on the next batch.
  void take_step(Loader& loader);
  StepInput input_of(StepBatch& batch) const;
  uint32_t votes() const;
  /// Throws NonFiniteError for the step after `step_`, which has changed nothing.
  [[noreturn]] void end_by_nonfinite(const StepResult& result);
  /// Whether train.max_time is over, `seconds` after this attempt began to train.
  bool time_over(double seconds) const;
  int64_t schedule_step() const { return static_cast<int64_t>(schedule_step_); }
  bool all_steps_done() const {
    const double done = recipe_.run.fast_dev_run > 0 ? static_cast<double>(step_) : schedule_step_;
    return done >= static_cast<double>(max_steps_);
  }
  double seconds_trained() const { return steady_seconds() - loop_started_; }

  // ---- the end of a step
  /// Validates and saves a checkpoint if they are due, and updates `course_`. A stop request leaves a validation that is
  /// due, and what follows it, to the run that continues.
  void end_step(uint32_t votes, const UnfinishedStep& step);
  bool hooks_stop() const { return !setup_.hooks.stop_reason().empty(); }
  /// False if a stop request ended the validation. There is no value then.
  bool validate();
  bool measure_validation();
  /// Takes the metrics that validation measured beside the loss, from its sums.
  void take_metrics(std::span<const double> sums);
  void restore_validation(const TrainerState& state);
  bool stop_agreed();
  void save(bool steps_follow);
  TrainerState trainer_state() const;
  /// For failures that occur on every rank: waits until the checkpoint is written. If a rank left earlier, the
  /// supervisor would stop rank 0 while it writes.
  void leave_together();

  TrainerSetup setup_;
  const Recipe& recipe_;
  TrainingReport report_;
  HealthWatch health_;
  Checkpointer checkpointer_;
  Course course_ = Course::going;
  TrainingProgress progress_;
  int64_t step_ = 0, max_steps_ = 0;
  double schedule_step_ = 0;  ///< the steps of the schedule that the updates count as; step_ without AdaScale
  int64_t tokens_ = 0;        ///< the sum of StepBatch::units
  DataPosition position_;
  double loss_ = std::nan(""), val_loss_ = 0;                ///< val_loss_ belongs to validated_step_
  std::vector<std::pair<std::string, double>> val_metrics_;  ///< the same for those beside the loss
  int64_t saved_step_ = -1, validated_step_ = -1;
  std::optional<UnfinishedStep> unfinished_;  ///< of step_
  bool completing_ = false;                   ///< a resumed run completes step_
  bool hooks_set_up_ = false;
  double last_save_ = 0, loop_started_ = 0, trained_before_ = 0;
};

}  // namespace runner
