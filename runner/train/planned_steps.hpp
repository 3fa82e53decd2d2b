// How many optimizer steps a recipe asks for. Torch-free.
#pragma once
#include <cstdint>

#include "runner/config/recipe.hpp"

namespace runner {

/// By fast_dev_run, or the smaller of max_steps and the steps of max_epochs over `samples` training samples; INT64_MAX
/// where neither is given.
int64_t planned_steps(const Recipe& resolved, int world_size, int64_t samples);

}  // namespace runner
