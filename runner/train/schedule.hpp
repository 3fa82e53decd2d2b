// Learning-rate schedules: the rate of a step as a pure function, so that resuming needs no state. Torch-free.
#pragma once
#include <cstdint>

#include "runner/config/recipe.hpp"

namespace runner {

/// The rate for optimizer step `step` (1-based) of `max_steps` (0 = unknown, allowed for constant and step).
/// Warm-up is linear from lr / warmup_steps to lr. After it:
///   constant  lr
///   linear    lr -> lr * min_lr_ratio at max_steps
///   cosine    the same along half a cosine (Loshchilov and Hutter, SGDR, 2017)
///   wsd       lr until decay_steps before the end, then linear to lr * min_lr_ratio (Hu et al., MiniCPM, 2024)
///   step      lr * gamma^floor(steps after warm-up / step_size)
double learning_rate(const Recipe::LrScheduler& schedule, double lr, int64_t step, int64_t max_steps);

}  // namespace runner
