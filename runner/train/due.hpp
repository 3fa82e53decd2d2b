// Why a training goes on or ends, and what is due at the end of a step. Torch-free.
#pragma once
#include "runner/config/recipe.hpp"

namespace runner {

/// Why the training goes on or ends after a step.
enum class Course {
  going,     ///< more steps follow
  complete,  ///< the last planned step is done
  max_time,  ///< train.max_time has passed
  hook,      ///< a hook has requested the end
  asked,     ///< a signal has requested the end, and something is left for the run that continues
};

/// Whether a validation of the step has been done.
enum class Validation {
  open,  ///< not yet, and it may be due
  done,  ///< the step has a validation loss
  left,  ///< it is due, but a stop request leaves it to the run that continues
};

/// The end of a step.
struct StepEnd {
  int64_t step = 0;
  Course course = Course::going;      ///< without the stop request
  bool asked_to_stop = false;         ///< a signal has requested the end
  bool epoch_end = false;             ///< this is the last step of its epoch
  bool unfinished = false;            ///< a resumed run completes this step
  bool checkpoint_requested = false;  ///< a hook has requested one, or checkpoint.every has passed
  Validation validation = Validation::open;
};

struct Due {
  bool validate = false;  ///< now, or in the run that continues if asked_to_stop
  bool save = false;
  Course course = Course::going;  ///< the training ends unless this is `going`
};

/// Call it twice: before the validation, for `validate`; after the validation and the hooks, for `save` and `course`.
/// `has_validation`: the recipe has validation data.
inline Due due(const Recipe& recipe, bool has_validation, const StepEnd& end) {
  const auto at_interval = [&](const std::optional<int64_t>& every) { return every && end.step % *every == 0; };
  const bool ends = end.course != Course::going;
  const auto& interval = recipe.train.val_check_interval;
  const bool validation_time = ends || end.unfinished || (interval ? at_interval(interval) : end.epoch_end);
  const auto& checkpoint = recipe.checkpoint;
  const bool ranked = checkpoint.save_top_k > 0 && end.validation == Validation::done;
  const bool rest_left = !ends || end.validation == Validation::left;
  return {.validate = has_validation && validation_time && end.validation == Validation::open,
          .save = at_interval(checkpoint.every_n_steps) || end.checkpoint_requested || end.asked_to_stop || ranked ||
                  (ends && checkpoint.save_at_end),
          .course = end.asked_to_stop && rest_left ? Course::asked : end.course};
}

}  // namespace runner
