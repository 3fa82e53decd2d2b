// Updates by LibTorch's operators, for optimizers without a fused kernel, on any device and for masters of any dtype.
#pragma once
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/host_update.hpp"

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

}  // namespace runner
