// The parts of a split backward in predictions: what the second part computes. Torch-free.
//
// The second part computes the gradients of the trained matrices of layers. Those of norms and biases, of the embedding, and of the
// vocabulary projection, which forward computes already, are in the first part.
#pragma once
#include <cstddef>

#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Whether the gradient of the parameter is computed in the second part.
bool is_later(const BlockSpec& block, const ParameterSpec& parameter);
/// Whether the block has such parameters.
bool has_later_products(const BlockSpec& block);
/// FLOPs per token of the second part of a block's backward. The first part has the others of ModelSpec::backward_flops_per_token().
double weight_flops_per_token(const ModelSpec& model, size_t block);

}  // namespace runner
