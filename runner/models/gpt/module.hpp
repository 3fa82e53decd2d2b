// The module of the gpt family.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/module.hpp"

namespace runner::gpt {

/// Adds a block to model.blocks for each block of model.spec.
void add_blocks(Model& model, const Recipe::Model& recipe);

/// The feed-forward of layer `layer`, with its norm and its residual (gpt::mlp_block()).
std::unique_ptr<Block> make_mlp(const Model& model, const Recipe::Model& recipe, const std::string& layer,
                                uint64_t index);

}  // namespace runner::gpt
