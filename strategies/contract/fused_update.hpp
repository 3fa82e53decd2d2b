// Updates by LibTorch's fused kernels of SGD, Adam and AdamW. Some kernels do not store 16-bit parameters, or round a float64 divisor. Other
// code replaces them there.
#pragma once
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/optimizer.hpp"
#include "strategies/contract/tensor_update.hpp"

namespace runner {

/// Element i of each list is of the same parameter. The lists of states that the optimizer does not keep are empty.
struct FusedTensors {
  std::vector<torch::Tensor> parameters, gradients, first = {}, second = {};
};

/// One call of the kernel. All tensors have one dtype. It overwrites the gradients if it divides them.
void fused_update(const OptimizerConfig& config, const UpdateSettings& settings, FusedTensors tensors);

/// Whether LibTorch's kernel writes parameters like this one. The CPU's kernel of SGD computes new values of 16-bit parameters, but does
/// not store them (PyTorch issue 191763).
bool fused_kernel_stores(OptimizerKind kind, const torch::Tensor& parameter);

/// SGD of one parameter in 16 bits, or of a part of it: LibTorch's kernel on copies in float32. It needs memory for one of the
/// parameter, one of the gradient and one of each state.
void widened_sgd(const OptimizerConfig& config, const TensorUpdate& update);

}  // namespace runner
