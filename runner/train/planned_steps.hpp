// Number of optimizer steps of a recipe. Torch-free.
#pragma once
#include <cstdint>

#include "runner/config/recipe.hpp"

namespace runner {

/// fast_dev_run if it is set, otherwise the smaller of max_steps and the steps of max_epochs over `samples` training
/// samples. INT64_MAX if neither is set.
int64_t planned_steps(const Recipe& resolved, int world_size, int64_t samples);

}  // namespace runner
