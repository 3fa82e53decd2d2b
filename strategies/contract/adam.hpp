// One Adam or AdamW update in host memory, vectorised for the CPU it runs on. Reads gradients in 32 or 16 bits, and can write a
// copy of the new parameters in the same pass. This header is torch-free.
#pragma once
#include <cstdint>

#include "strategies/contract/precision.hpp"

namespace runner {

struct AdamSettings {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true;          ///< true: AdamW, decay applies to the parameter; false: Adam, to the gradient
  double gradient_divisor = 1.0;  ///< loss scale and clipping
  int64_t step = 1;               ///< number of this update, from 1, for the bias corrections
};

/// `count` elements of one parameter. The arrays do not overlap.
struct AdamSpan {
  float* parameter = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const void* gradient = nullptr;         ///< read only
  DType gradient_dtype = DType::float32;  ///< float32, bfloat16 or float16
  void* copy = nullptr;                   ///< if not null, the new parameter is also written here in `copy_dtype`
  DType copy_dtype = DType::bfloat16;     ///< float32; or bfloat16 or float16, rounded to nearest even
  int64_t count = 0;

  /// Elements [begin, begin + count) of this span.
  AdamSpan cut(int64_t begin, int64_t count) const;
};

/// Elementwise, in single precision, with fused multiply-adds exactly where LibTorch's fused kernel has them. The result has the
/// same bits on every machine and for every split of a parameter into spans.
/// Source: Kingma and Ba, Adam (ICLR 2015); Loshchilov and Hutter, Decoupled Weight Decay (ICLR 2019).
void adam_update(const AdamSettings& settings, const AdamSpan& span);

}  // namespace runner
