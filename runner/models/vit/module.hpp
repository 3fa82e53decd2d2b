// The module of the vit family.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/module.hpp"

namespace runner::vit {

/// Adds a block to model.blocks for each block of model.spec.
void add_blocks(Model& model, const Recipe::Model& recipe);

}  // namespace runner::vit
