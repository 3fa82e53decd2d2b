// The module of the llama family.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/module.hpp"

namespace runner::llama {

/// Fills model.blocks, one per block of model.spec.
void add_blocks(Model& model, const Recipe::Model& recipe);

}  // namespace runner::llama
