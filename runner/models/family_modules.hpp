// The modules of the families for the registry in module.cpp. Each function adds a block to model.blocks for each block of model.spec.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

namespace decoder {
void add_blocks(Model& model, const Recipe::Model& recipe);
}
namespace encoder {
void add_blocks(Model& model, const Recipe::Model& recipe);
}
namespace gpt {
void add_blocks(Model& model, const Recipe::Model& recipe);
/// The feed-forward of layer `layer`, with its norm and its residual (gpt::mlp_block()).
std::unique_ptr<Block> make_mlp(const Model& model, const Recipe::Model& recipe, const std::string& layer,
                                uint64_t index);
}  // namespace gpt
namespace mlp {
void add_blocks(Model& model, const Recipe::Model& recipe);
}
namespace resnet {
void add_blocks(Model& model, const Recipe::Model& recipe);
}
namespace vit {
void add_blocks(Model& model, const Recipe::Model& recipe);
}

}  // namespace runner
