// GELU, exact or in its tanh approximation, with its gradient.
#pragma once

#include "runner/models/gelu_loops.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// x Phi(x), with x's shape and dtype. x must be a temporary that has no other user, such as the output of a product:
/// fp32 and bfloat16 in host memory are overwritten by the derivative, which is all that backward needs.
torch::Tensor gelu(const torch::Tensor& x, Gelu form);

}  // namespace runner
