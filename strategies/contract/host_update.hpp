// One elementwise update of an optimizer in host memory, vectorised for the CPU that it runs on. It reads gradients in 32 or 16 bits, and
// can write a copy of the new parameters in the same pass. This header is torch-free.
#pragma once
#include <cstdint>

#include "strategies/contract/precision.hpp"
#include "strategies/optimizer/optimizer_spec.hpp"

namespace runner {

/// The effect of an update on the moments of Adam.
enum class Moments {
  from_gradient,  ///< takes the gradient into both
  kept,           ///< changes none; the gradient is not used
  first_given     ///< the gradient is the new first moment, up to rounding; the second one is kept
};

struct UpdateSettings {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true;          ///< true: AdamW, decay applies to the parameter; false: Adam, to the gradient
  double gradient_divisor = 1.0;  ///< loss scale and clipping
  int64_t step = 1;               ///< number of this update, from 1, for the bias corrections
  UpdateRule rule = UpdateRule::adam;
  Moments moments = Moments::from_gradient;  ///< of the rule adam; weights decay only with from_gradient
  double average_share = 0;                  ///< schedule-free: share of this update in the average of the weights
};

/// `count` elements of one parameter. The arrays do not overlap.
struct UpdateSpan {
  float* parameter = nullptr;
  float* first = nullptr;                 ///< the states, in the order of the rule
  float* second = nullptr;                ///< unused by lion
  const void* gradient = nullptr;         ///< read only
  DType gradient_dtype = DType::float32;  ///< float32, bfloat16 or float16
  void* copy = nullptr;                   ///< if not null, the new parameter is also written here in `copy_dtype`
  DType copy_dtype = DType::bfloat16;     ///< float32; or bfloat16 or float16, rounded to nearest even
  int64_t count = 0;

  /// Elements [begin, begin + count) of this span.
  UpdateSpan cut(int64_t begin, int64_t count) const;
};

/// Converts `count` elements to float32.
void widen_gradient(const void* gradient, DType dtype, float* wide, int64_t count);

/// LibTorch's operators update this number of elements at a time (tensor_update.hpp): a multiple of state_block.
constexpr int64_t tensor_update_elements(bool on_host) { return on_host ? int64_t{1} << 16 : int64_t{1} << 22; }

/// Elementwise, in single precision, with fused multiply-adds exactly where LibTorch's fused kernel has them. The result has the
/// same bits on every machine and for every split of a parameter into spans.
/// Source: Kingma and Ba, Adam (ICLR 2015); Loshchilov and Hutter, Decoupled Weight Decay (ICLR 2019); Chen et al., Symbolic
/// Discovery of Optimization Algorithms (Lion, NeurIPS 2023); Defazio et al., The Road Less Scheduled (NeurIPS 2024).
void host_update(const UpdateSettings& settings, const UpdateSpan& span);

}  // namespace runner
