#include "runner/train/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace runner {

double learning_rate(const Recipe::LrScheduler& schedule, double lr, int64_t step, int64_t max_steps) {
  if (step <= schedule.warmup_steps) return lr * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  double low = lr * schedule.min_lr_ratio;
  /// 0 at the end of `from`, 1 at max_steps.
  auto progress = [&](int64_t from) {
    if (max_steps <= from) return 1.0;
    return std::clamp(static_cast<double>(step - from) / static_cast<double>(max_steps - from), 0.0, 1.0);
  };
  if (schedule.name == "linear") return lr + (low - lr) * progress(schedule.warmup_steps);
  if (schedule.name == "cosine")
    return low + (lr - low) * 0.5 * (1 + std::cos(std::numbers::pi * progress(schedule.warmup_steps)));
  if (schedule.name == "wsd") {
    int64_t decay = schedule.decay_steps.value_or(std::max<int64_t>(1, max_steps / 10));
    int64_t stable_end = std::max(schedule.warmup_steps, max_steps - decay);
    return step <= stable_end ? lr : lr + (low - lr) * progress(stable_end);
  }
  if (schedule.name == "step")
    return lr * std::pow(schedule.gamma,
                         static_cast<double>((step - schedule.warmup_steps - 1) / schedule.step_size.value_or(1)));
  return lr;
}

}  // namespace runner
