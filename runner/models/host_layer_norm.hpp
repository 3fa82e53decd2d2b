// LayerNorm of bfloat16 in host memory, in one pass over the rows in each direction.
#pragma once

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// (x - mean) / sqrt(variance + eps) * weight + bias over the last dim of a contiguous bfloat16 tensor, with arithmetic
/// in fp32. weight and bias [dim] are bfloat16; bias may be undefined. Saves x, weight and two fp32 statistics per row.
torch::Tensor host_layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                              double eps);

}  // namespace runner
