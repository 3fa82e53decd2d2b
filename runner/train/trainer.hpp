// The training loop of one rank: batches in, steps, validation, checkpoints, events out. It decides nothing: the recipe
// is resolved.
#pragma once
#include <atomic>
#include <string>

#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"
#include "runner/launch/events.hpp"
#include "runner/train/checkpointer.hpp"
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
};

struct TrainerResult {
  int64_t steps = 0;
  double final_loss = 0;
  bool stopped = false;  ///< asked to stop before the end; a checkpoint was published (unless fast_dev_run)
};

class Trainer {
 public:
  explicit Trainer(TrainerSetup setup);
  /// Continues from a checkpoint: parameters, optimizer, scaler, data position.
  void resume(const Checkpoint& checkpoint);
  /// To the end, or until a rank is asked to stop. Throws Error(run_failed) when the loss is not finite and the recipe
  /// says stop.
  TrainerResult run();

 private:
  enum Vote : uint32_t { vote_stop = 1, vote_checkpoint = 2, vote_time_over = 4 };

  bool train_step(StepBatch& batch);
  StepInput to_device(const StepBatch& batch) const;
  MicroBatch to_device(const HostBatch& batch) const;
  void report(const StepResult& result, double seconds, double waited, int64_t tokens, double lr);
  double validate();
  void save();
  uint32_t votes() const;
  bool due(const std::optional<int64_t>& every) const { return every && step_ % *every == 0; }
  int64_t planned_steps() const;
  TrainerState trainer_state() const;
  void validate_and_save(const StepResult& result, bool epoch_end, bool last);

  TrainerSetup setup_;
  const Recipe& recipe_;
  Checkpointer checkpointer_;
  int64_t step_ = 0, max_steps_ = 0, tokens_ = 0;
  DataPosition position_;
  double loss_ = 0;
  std::optional<double> val_loss_;
  int64_t saved_step_ = -1, validated_step_ = -1;
  double last_save_ = 0, loop_started_ = 0, trained_before_ = 0;
};

}  // namespace runner
