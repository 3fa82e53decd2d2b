// Learning-rate schedules: the rate of a step as a pure function, so that resuming needs no state.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

// The shapes of schedules after warm-up.

struct ScheduleShape {
  std::string name;  ///< lr_scheduler.name in recipes
  /// Whether the shape depends on where training ends.
  std::function<bool(const Recipe::LrScheduler& schedule)> needs_end;
  /// The factor on lr. `step`: steps since the end of warm-up, from 1. `steps`: those that training has after warm-up; 0 if there
  /// are none, or if the end is unknown.
  std::function<double(const Recipe::LrScheduler& schedule, int64_t step, int64_t steps)> factor;
};

/// The schedules are in the order in which messages list them.
///   constant              1
///   linear                1 -> min_lr_ratio at the end
///   cosine                as linear, along half a cosine (Loshchilov and Hutter, SGDR, 2017)
///   cosine_with_restarts  half cosines from 1 to min_lr_ratio. The first has cycle_steps steps, and each following one cycle_factor
///                         times as many. PyTorch's CosineAnnealingWarmRestarts (T_0, T_mult) at T_cur = step - 1
///   polynomial            min_lr_ratio + (1 - min_lr_ratio) * (share of the steps that is left)^power
///   inverse_sqrt          sqrt(timescale / (timescale + step)); timescale is the length of warm-up by default, or 10000
///   wsd                   1 until decay_steps before the end, then to min_lr_ratio, as decay_type says (Hu et al., MiniCPM, 2024)
///   step                  gamma^floor((step - 1) / step_size)
///   one_cycle             1 / div_factor -> 1 during the share pct_start of the steps, then to 1 / (div_factor * final_div_factor)
///                         at the end: PyTorch's OneCycleLR
/// linear, cosine, polynomial, inverse_sqrt and wsd have the values of the schedules of Transformers (optimization.py).
const std::vector<ScheduleShape>& schedule_shapes();
/// nullptr if there is no shape with this name.
const ScheduleShape* find_schedule_shape(const std::string& name);

/// The rate for optimizer step `step` (1-based) of `max_steps` (0 = unknown, allowed unless needs_end()).
/// Warm-up, in the first N = warmup_steps steps:
///   linear    lr * step / N
///   log       lr * ln(step) / ln(max(2, N)): 0 at the first step, lr at step N. This is the curve of DeepSpeed's
///             WarmupLR (runtime/lr_schedules.py, _get_gamma) at last_batch_iteration = step - 1
/// After warm-up: lr times the factor of the schedule's shape (ScheduleShape).
double learning_rate(const Recipe::LrScheduler& schedule, double lr, int64_t step, int64_t max_steps);

/// Whether the schedule depends on where training ends.
bool needs_end(const Recipe::LrScheduler& schedule);

/// A note if the rate of all steps is 0, or if warm-up or decay takes longer than training has steps for it; otherwise empty.
std::string schedule_note(const Recipe& recipe);
/// A note as schedule_note() gives it on rate and warm-up, for a training that train.max_epochs ends after `steps`.
std::string warmup_note(const Recipe& recipe, int64_t steps);

/// For a run that continues after step `step` with the recipe `now` instead of `before`: a note if this changes the
/// learning rate of the next step; otherwise empty. Also empty if `now` has a schedule that ends with max_epochs: the
/// rate then depends on the data, and the training compares it.
std::string rate_change_note(const Recipe& before, const Recipe& now, int64_t step);

}  // namespace runner
