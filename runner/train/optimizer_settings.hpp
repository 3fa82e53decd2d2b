// The settings of the optimizer that a recipe asks for.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/optimizer.hpp"

namespace runner {

OptimizerConfig optimizer_config(const Recipe& recipe);

}  // namespace runner
