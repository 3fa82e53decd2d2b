// The shapes of learning-rate schedules after warm-up.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

struct ScheduleShape {
  std::string name;  ///< lr_scheduler.name in recipes
  /// Whether the shape depends on where training ends.
  std::function<bool(const Recipe::LrScheduler& schedule)> needs_end;
  /// The factor on lr. `step`: steps since the end of warm-up, from 1. `steps`: those that training has after warm-up; 0 if there
  /// are none, or if the end is unknown.
  std::function<double(const Recipe::LrScheduler& schedule, int64_t step, int64_t steps)> factor;
};

/// In the order in which messages list them.
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

}  // namespace runner
