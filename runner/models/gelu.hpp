// GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415), exact or by its tanh approximation.
#pragma once

#include "strategies/collective/libtorch.hpp"

namespace runner {

enum class Gelu { exact, tanh };

/// x Phi(x), of x's shape and dtype. x must be a temporary that nobody else reads, such as a product's output: fp32 in
/// host memory is overwritten with the derivative, which is all that backward needs.
torch::Tensor gelu(const torch::Tensor& x, Gelu form);

/// The loops behind it, over `count` elements; `x` becomes the derivative. Within 3e-7 of the exact value and
/// derivative, relative to max(1, |x|); infinities and NaN end as ATen's do.
void gelu_with_derivative(float* x, float* y, int64_t count, Gelu form);

}  // namespace runner
