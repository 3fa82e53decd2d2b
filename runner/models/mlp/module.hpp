// The module of the mlp family.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/module.hpp"

namespace runner::mlp {

/// Adds a block to model.blocks for each block of model.spec.
void add_blocks(Model& model, const Recipe::Model& recipe);

}  // namespace runner::mlp
