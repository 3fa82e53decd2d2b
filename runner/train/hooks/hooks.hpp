// The messages of the trainer to hooks, and its requests to them.
#pragma once
#include <optional>
#include <string>

#include "runner/lua/hook_set.hpp"
#include "runner/train/checkpointer.hpp"

namespace runner {

/// The progress of the training, as hooks read it.
struct TrainingProgress {
  int64_t step = 0;                       ///< optimizer steps done
  int64_t epoch = 0;                      ///< from 0
  std::optional<int64_t> max_steps = {};  ///< none if only time ends the training
  bool last_step = false;                 ///< the last planned step is done; a stop by a hook does not count
  double lr_factor = 1;                   ///< factor on optimizer.lr of the next step, or of the one that was just done
};

/// The hooks of a training. Every rank makes the same calls. This base class does nothing: it is used without hooks.
class Hooks {
 public:
  virtual ~Hooks() = default;

  /// Collective. Throws lua::HookError on all ranks if a hook failed on one of them and on_error is "stop".
  /// The three moments inside a step are called through the strategy, with the progress of the last call.
  virtual void call(lua::Moment, const TrainingProgress&) {}
  /// Calls on_exception on this rank only. Only reports errors in it.
  virtual void call_exception(const std::string& /*what*/) noexcept {}
  virtual void set_metric(const std::string& /*name*/, double /*value*/) {}
  /// Call it after each validation, also after one that was stopped. Collective. Restores parameters that hooks have
  /// changed since on_validation_start.
  virtual void end_validation() {}

  // ---- requests of hooks; equal on all ranks
  /// The reason, if a hook has requested to stop; otherwise empty.
  virtual std::string stop_reason() const { return {}; }
  /// Whether a hook has requested a checkpoint since the last call.
  virtual bool take_checkpoint() { return false; }

  // ---- checkpoints
  /// Calls on_save_checkpoint. Adds the states of hooks and what load() and restore_history() need to a checkpoint's
  /// state, and this rank's pieces of tensors, and files. Collective.
  virtual void save(TrainerState&, Checkpointer::More&) {}
  /// Restores what a checkpoint contains of hooks in addition to their states: last values of metrics, names of
  /// disabled hooks, and sizes of artifacts. Artifacts are truncated to these sizes, because the resumed run writes the
  /// rest again. Call it before anything else that hooks can see.
  virtual void restore_history(const TrainerState&) {}
  /// Restores the reason of a stop that was requested before the checkpoint.
  virtual void restore_stop(const std::string& /*reason*/) {}
  /// Collective. Gives every rank the same states, with the rank's elements of their tensors from the checkpoint. Calls
  /// on_load_checkpoint. Throws Error(environment) if a tensor is missing or has another shape.
  virtual void load(const Checkpoint&, const TrainingProgress&) {}
};

}  // namespace runner
