#include "runner/train/due.hpp"

namespace runner {

namespace {

bool at_interval(const std::optional<int64_t>& every, int64_t step) { return every && step % *every == 0; }

}  // namespace

Due due(const Recipe& recipe, bool has_validation, const StepEnd& end) {
  const bool ends = end.course != Course::going;
  const auto& interval = recipe.train.val_check_interval;
  const bool validation_time = ends || end.unfinished || (interval ? at_interval(interval, end.step) : end.epoch_end);
  const auto& checkpoint = recipe.checkpoint;
  const bool ranked = checkpoint.save_top_k > 0 && end.validation == Validation::done;
  const bool rest_left = !ends || end.validation == Validation::left;
  return {.validate = has_validation && validation_time && end.validation == Validation::open,
          .save = at_interval(checkpoint.every_n_steps, end.step) || end.checkpoint_requested || end.asked_to_stop ||
                  ranked || (ends && checkpoint.save_at_end),
          .course = end.asked_to_stop && rest_left ? Course::asked : end.course};
}

}  // namespace runner
