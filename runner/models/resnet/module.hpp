// The module of the resnet family.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/module.hpp"

namespace runner::resnet {

/// Adds a block to model.blocks for each block of model.spec.
void add_blocks(Model& model, const Recipe::Model& recipe);

}  // namespace runner::resnet
