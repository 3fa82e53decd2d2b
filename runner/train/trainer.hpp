// The training loop of one rank: batches in, steps, validation, checkpoints, events out. It decides nothing: the recipe
// is resolved.
#pragma once
#include <atomic>
#include <string>

#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"
#include "runner/launch/events.hpp"
#include "runner/train/checkpointer.hpp"
#include "runner/train/hooks/training_hooks.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

struct TrainerSetup {
  const Recipe& recipe;  ///< resolved
  World& world;
  Strategy& strategy;
  const Dataset& train;
  const Dataset* validation = nullptr;
  EventSink& events;
  fs::path run_dir;
  int64_t vocab_size = 0;
  double started = 0;                       ///< steady_seconds() at the worker's start
  const std::atomic<bool>* stop = nullptr;  ///< set by the signal handler
  std::function<int64_t()> memory_bytes;    ///< tensor bytes in use at their peak so far
  TrainingHooks* hooks = nullptr;           ///< the recipe's, if any
  int64_t attempt = 1;                      ///< of the run
  nlohmann::json data_meaning = {};         ///< of rank 0, for checkpoints
  bool accept_changed_data = false;         ///< a position beyond the data's end is the next epoch's begin
};

struct TrainerResult {
  int64_t steps = 0;
  double final_loss = 0;
  /// Asked to stop before the end, which includes the last validation; a checkpoint was published (unless
  /// fast_dev_run).
  bool stopped = false;
};

class Trainer {
 public:
  explicit Trainer(TrainerSetup setup);
  /// Continues from a checkpoint: parameters, optimizer, scaler, data position, and what hooks keep. Reads what this
  /// rank needs, no more. Throws Error(environment) where the checkpoint does not fit.
  void resume(const Checkpoint& checkpoint);
  /// To the end, or until a hook or a rank is asked to stop. Throws lua::HookError, and NonFiniteError when the loss is
  /// not finite and the recipe says stop; a checkpoint that was on its way is published then.
  TrainerResult run();

 private:
  Checkpointer::Calls checkpoint_calls();
  enum Vote : uint32_t { vote_stop = 1, vote_checkpoint = 2, vote_time_over = 4 };

  TrainerResult train();
  /// Every rank fails here, so a checkpoint on its way can arrive; whoever left first would have rank 0 stopped in it.
  void leave_together();
  void call_hooks(lua::Moment moment);
  /// on_train_batch_end, with what the step gave.
  void tell_hooks(const StepResult& result, int64_t epoch);
  /// Once, before anything else that hooks see.
  void set_up_hooks();
  /// Refuses replicas of another number of ranks, and says where those above rank 0 are left behind.
  void check_replicas(const Checkpoint& checkpoint) const;
  StepResult train_step(const StepInput& input);
  StepInput to_device(const StepBatch& batch) const;
  MicroBatch to_device(const HostBatch& batch) const;
  void report(const StepResult& result, double seconds, double waited, int64_t tokens, double lr);
  /// False where a stop ended it: there is no value then.
  bool validate();
  bool measure_validation();
  bool stop_agreed() const;
  void save(bool steps_follow);
  uint32_t votes() const;
  bool due(const std::optional<int64_t>& every) const { return every && step_ % *every == 0; }
  TrainerState trainer_state() const;
  /// Validation and checkpoint where they are due. True when the run must stop here, complete or not. Sets `last`
  /// where a hook has asked for the end.
  bool end_step(uint32_t votes, bool epoch_end, bool& last);
  bool hooks_stop() const { return setup_.hooks && !setup_.hooks->stop_reason().empty(); }

  TrainerSetup setup_;
  const Recipe& recipe_;
  Checkpointer checkpointer_;
  int64_t step_ = 0, max_steps_ = 0, tokens_ = 0;
  DataPosition position_;
  double loss_ = 0, val_loss_ = 0;  ///< val_loss_ is that of validated_step_
  int64_t saved_step_ = -1, validated_step_ = -1;
  bool hooks_set_up_ = false;
  double last_save_ = 0, loop_started_ = 0, trained_before_ = 0;
};

}  // namespace runner
