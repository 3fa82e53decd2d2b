// The parts of a split backward in predictions: what the second part computes, and what is kept for it. Torch-free.
//
// The second part computes the gradients of the trained matrices of layers. Those of norms and biases, of the embedding, and of the
// vocabulary projection, which forward computes already, are in the first part.
#pragma once
#include <cstddef>
#include <vector>

#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Whether the gradient of the parameter is computed in the second part.
bool is_later(const BlockSpec& block, const ParameterSpec& parameter);
/// Whether the block has such parameters.
bool has_later_products(const BlockSpec& block);
/// FLOPs per token of the second part of a block's backward. The first part has the others of ModelSpec::backward_flops_per_token().
double weight_flops_per_token(const ModelSpec& model, size_t block);

/// A tensor that is kept for the second part: the input of some matrices, or the gradient of their results.
struct KeptTensor {
  enum class Of { input, gradient };
  enum class Until {
    backward,  ///< without a split, its last use is the backward of the matrices
    maker,     ///< .. the backward of the operation that made it, which follows
    block,     ///< .. the end of the block's backward: it is the block's input, or the gradient of the block's output
  };
  Of of = Of::input;
  Until until = Until::backward;
  double elements_per_token = 0;        ///< of the compute dtype
  std::vector<size_t> parameters = {};  ///< indices of the later parameters that need it, ascending
};
/// What a block keeps.
std::vector<KeptTensor> tensors_kept_for_weights(const ModelSpec& model, size_t block);

}  // namespace runner
