// The parts of the gpt family's spec that other families use, too. Torch-free.
#pragma once
#include "runner/models/models.hpp"

namespace runner::gpt {

int64_t hidden_dim(const Recipe::Model& model);
/// The feed-forward of a layer, with its norm and its residual.
BlockSpec mlp_block(const Recipe::Model& model, const std::string& layer, const TensorDivision& division = {});

}  // namespace runner::gpt
