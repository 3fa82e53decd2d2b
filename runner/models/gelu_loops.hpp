// The loops of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415), exact or in its tanh approximation, over fp32 in
// host memory.
#pragma once
#include <cstdint>

namespace runner {

enum class Gelu { exact, tanh };

/// y = x Phi(x) for `count` elements; `x` is overwritten by the derivative. The error of value and derivative is at
/// most 3e-7, relative to max(1, |x|). Infinities and NaN give the same results as in ATen.
void gelu_with_derivative(float* x, float* y, int64_t count, Gelu form);

}  // namespace runner
