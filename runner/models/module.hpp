// Builds the module of a spec: blocks over empty parameter slots (see strategies/contract/module.hpp).
#pragma once
#include <memory>

#include "runner/config/recipe.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

std::unique_ptr<Model> build_model(const Recipe::Model& model, const ModelSpec& spec);

// The modules of the families. Each function adds a block to model.blocks for each block of model.spec.

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
