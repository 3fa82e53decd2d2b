// Updates of tensors by LibTorch: by its fused kernels of SGD, Adam and AdamW, and by its operators, for optimizers
// without such a kernel, on any device and for masters of any dtype. Some kernels do not store 16-bit parameters, or
// round a float64 divisor. Other code replaces them there.
#pragma once
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/host_update.hpp"
#include "strategies/contract/optimizer.hpp"

namespace runner {

/// The update of one parameter, or of a part of it. All tensors are 1-d.
struct TensorUpdate {
  UpdateSettings settings;
  torch::Tensor parameter;
  torch::Tensor gradient;  ///< of any dtype; read only
  std::vector<torch::Tensor> states;
};

/// The rule of `settings`, computed in float64 for float64 masters, and otherwise in float32. It has the results of host_update() up to
/// rounding, and needs memory for OptimizerSpec::operator_copies wide tensors of the parameter's size. With states in 8 bits
/// (quantized_adam.hpp), the part begins at the beginning of a block.
void tensor_update(const TensorUpdate& update);

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
