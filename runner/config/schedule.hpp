// Learning-rate schedules: the rate of a step as a pure function, so that resuming needs no state.
#pragma once
#include <cstdint>
#include <string>

#include "runner/config/recipe.hpp"

namespace runner {

/// The rate for optimizer step `step` (1-based) of `max_steps` (0 = unknown, allowed unless needs_end()).
/// Warm-up, in the first N = warmup_steps steps:
///   linear    lr * step / N
///   log       lr * ln(step) / ln(max(2, N)): 0 at the first step, lr at step N. This is the curve of DeepSpeed's
///             WarmupLR (runtime/lr_schedules.py, _get_gamma) at last_batch_iteration = step - 1
/// After warm-up: lr times the factor of the schedule's shape (schedule_shapes.hpp).
double learning_rate(const Recipe::LrScheduler& schedule, double lr, int64_t step, int64_t max_steps);

/// Whether the schedule depends on where training ends.
bool needs_end(const Recipe::LrScheduler& schedule);

/// A note if warm-up or decay takes longer than training has steps for it; otherwise empty.
std::string schedule_note(const Recipe& recipe);
/// Warnings about warm-up, if train.max_epochs ends the training after `steps`.
std::string warmup_note(const Recipe& recipe, int64_t steps);

/// For a run that continues after step `step` with the recipe `now` instead of `before`: a note if this changes the
/// learning rate of the next step; otherwise empty. Also empty if `now` has a schedule that ends with max_epochs: the
/// rate then depends on the data, and the training compares it.
std::string rate_change_note(const Recipe& before, const Recipe& now, int64_t step);

}  // namespace runner
