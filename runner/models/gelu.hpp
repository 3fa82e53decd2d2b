// GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415), exact or in its tanh approximation.
#pragma once

#include "strategies/collective/libtorch.hpp"

namespace runner {

enum class Gelu { exact, tanh };

/// x Phi(x), with x's shape and dtype. x must be a temporary that has no other user, such as the output of a product:
/// fp32 in host memory is overwritten by the derivative, which is all that backward needs.
torch::Tensor gelu(const torch::Tensor& x, Gelu form);

/// The loops of gelu() over `count` elements. `x` is overwritten by the derivative. The error of value and derivative
/// is at most 3e-7, relative to max(1, |x|). Infinities and NaN give the same results as in ATen.
void gelu_with_derivative(float* x, float* y, int64_t count, Gelu form);

}  // namespace runner
