#include "strategies/contract/host_update.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "runner/base/bfloat16.hpp"
#include "runner/base/vector_clones.hpp"

namespace runner {

namespace {

constexpr int64_t block = 2048;  ///< elements; the converted gradients of a block fit in the first-level cache

struct Coefficients {
  float divisor, keep, decay, beta1, beta1_rest, beta2, beta2_rest, root_of_correction, eps, step_size;
  float rate, average_share, y_rate;  ///< not of adam
};

Coefficients coefficients(const UpdateSettings& s) {
  auto step = static_cast<double>(s.step);
  double correction1 = 1 - std::pow(s.beta1, step), correction2 = 1 - std::pow(s.beta2, step);
  Coefficients c{};
  c.divisor = static_cast<float>(s.gradient_divisor);
  c.keep = static_cast<float>(s.decoupled ? 1 - s.lr * s.weight_decay : 1.0);
  c.decay = static_cast<float>(s.decoupled ? 0.0 : s.weight_decay);
  c.beta1 = static_cast<float>(s.beta1);
  c.beta1_rest = static_cast<float>(1 - s.beta1);
  c.beta2 = static_cast<float>(s.beta2);
  c.beta2_rest = static_cast<float>(1 - s.beta2);
  if (s.moments !=
      Moments::from_gradient) {  // the kernel computes m + rest (g - m): m is kept, or replaced by the gradient
    c.keep = 1;
    c.decay = 0;
    c.beta1_rest = s.moments == Moments::first_given ? 1.0f : 0.0f;
    c.beta2 = 1;
    c.beta2_rest = 0;
  }
  c.root_of_correction = static_cast<float>(std::sqrt(correction2));
  c.eps = static_cast<float>(s.eps);
  c.step_size = static_cast<float>(s.lr / correction1);
  c.rate = static_cast<float>(s.lr);
  c.average_share = static_cast<float>(s.average_share);
  c.y_rate = static_cast<float>(s.lr * (s.beta1 * (1 - s.average_share) - 1));
  return c;
}

RUNNER_VECTOR_CLONES void update(const Coefficients& c, float* __restrict parameter, float* __restrict exp_avg,
                                 float* __restrict exp_avg_sq, const float* __restrict gradient, int64_t count) {
  const Coefficients k = c;
  const bool coupled = k.decay != 0;  // without this test, an infinite parameter times 0 would give NaN
  for (int64_t i = 0; i < count; ++i) {
    float p = parameter[i] * k.keep;
    float g = gradient[i] / k.divisor;
    if (coupled) g = __builtin_fmaf(p, k.decay, g);
    float m = __builtin_fmaf(k.beta1_rest, g - exp_avg[i], exp_avg[i]);
    float v = __builtin_fmaf(k.beta2_rest * g, g, exp_avg_sq[i] * k.beta2);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    parameter[i] = p - k.step_size * m / (std::sqrt(v) / k.root_of_correction + k.eps);
  }
}

RUNNER_VECTOR_CLONES void update_lion(const Coefficients& c, float* __restrict parameter, float* __restrict exp_avg,
                                      const float* __restrict gradient, int64_t count) {
  const Coefficients k = c;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] / k.divisor, m = exp_avg[i];
    const float direction = __builtin_fmaf(k.beta1_rest, g, m * k.beta1);
    const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);
    parameter[i] = __builtin_fmaf(-k.rate, sign, parameter[i] * k.keep);
    exp_avg[i] = __builtin_fmaf(k.beta2_rest, g, m * k.beta2);
  }
}

/// `parameter` is y. The average x of the weights is not stored: it is between y and z.
RUNNER_VECTOR_CLONES void update_schedule_free(const Coefficients& c, float* __restrict parameter, float* __restrict z,
                                               float* __restrict exp_avg_sq, const float* __restrict gradient,
                                               int64_t count) {
  const Coefficients k = c;
  const bool decays = k.decay != 0;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] / k.divisor, y = parameter[i];
    const float v = __builtin_fmaf(k.beta2_rest * g, g, exp_avg_sq[i] * k.beta2);
    float direction = g / (std::sqrt(v) / k.root_of_correction + k.eps);
    if (decays) direction = __builtin_fmaf(y, k.decay, direction);
    exp_avg_sq[i] = v;
    parameter[i] = __builtin_fmaf(k.y_rate, direction, __builtin_fmaf(k.average_share, z[i] - y, y));
    z[i] = __builtin_fmaf(-k.rate, direction, z[i]);
  }
}

void update_by_rule(UpdateRule rule, const Coefficients& c, const UpdateSpan& span, const float* gradient) {
  switch (rule) {
    case UpdateRule::adam:
      return update(c, span.parameter, span.first, span.second, gradient, span.count);
    case UpdateRule::lion:
      return update_lion(c, span.parameter, span.first, gradient, span.count);
    case UpdateRule::schedule_free:
      return update_schedule_free(c, span.parameter, span.first, span.second, gradient, span.count);
    case UpdateRule::none:
      return;
  }
}

/// Shifts exponent and mantissa to their float32 positions and corrects the exponent bias by a multiplication. Below the smallest
/// normal number the magnitude is a count of 2^-24, which is the unit in the last place of 0.5 in float32.
RUNNER_VECTOR_CLONES void widen_float16(const uint16_t* __restrict in, float* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t sign = static_cast<uint32_t>(in[i] & 0x8000) << 16, magnitude = in[i] & 0x7fff;
    uint32_t normal = std::bit_cast<uint32_t>(std::bit_cast<float>((magnitude << 13) + 0x70000000) * 0x1p-112f);
    uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude | 0x3f000000) - 0.5f);
    out[i] = std::bit_cast<float>(sign | (magnitude < 0x400 ? small : normal));
  }
}

/// Adds 2^13 times the power of two of the value. The float32 addition then rounds to the last place of float16, to nearest even,
/// and the low bits of the sum are the value in units of that place.
RUNNER_VECTOR_CLONES void narrow_float16(const float* __restrict in, uint16_t* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    auto bits = std::bit_cast<uint32_t>(in[i]);
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t finite = std::min(magnitude, 0x47800000u);           // 65536 becomes infinity
    uint32_t power = std::max(finite & 0x7f800000, 0x38800000u);  // at least 2^-14, the smallest normal
    uint32_t places = std::bit_cast<uint32_t>(std::bit_cast<float>(power + 0x06800000) + std::bit_cast<float>(finite)) -
                      (power + 0x06800000);
    uint32_t half = ((power - 0x38800000) >> 13) + places;
    out[i] = static_cast<uint16_t>(((bits >> 16) & 0x8000) | (magnitude > 0x7f800000 ? 0x7e00 : half));
  }
}

const char* at(const void* data, DType dtype, int64_t element) {
  return static_cast<const char*>(data) + element * bytes_of(dtype);
}

}  // namespace

UpdateSpan UpdateSpan::cut(int64_t begin, int64_t elements) const {
  UpdateSpan piece = *this;
  for (float** array : {&piece.parameter, &piece.first, &piece.second})
    if (*array) *array += begin;
  piece.gradient = at(gradient, gradient_dtype, begin);
  if (copy) piece.copy = const_cast<char*>(at(copy, copy_dtype, begin));
  piece.count = elements;
  return piece;
}

void widen_gradient(const void* gradient, DType dtype, float* wide, int64_t count) {
  const auto* narrow = static_cast<const uint16_t*>(gradient);
  if (dtype == DType::float32) std::memcpy(wide, gradient, static_cast<size_t>(count) * sizeof(float));
  if (dtype == DType::bfloat16) widen_bfloat16(narrow, wide, count);
  if (dtype == DType::float16) widen_float16(narrow, wide, count);
}

void host_update(const UpdateSettings& settings, const UpdateSpan& span) {
  const Coefficients c = coefficients(settings);
  alignas(64) std::array<float, block> wide;
  for (int64_t begin = 0; begin < span.count; begin += block) {
    UpdateSpan piece = span.cut(begin, std::min(block, span.count - begin));
    const float* gradient = static_cast<const float*>(piece.gradient);
    if (span.gradient_dtype != DType::float32) {
      gradient = wide.data();
      widen_gradient(piece.gradient, span.gradient_dtype, wide.data(), piece.count);
    }
    update_by_rule(settings.rule, c, piece, gradient);
    auto* copy = static_cast<uint16_t*>(piece.copy);
    if (copy && span.copy_dtype == DType::float32)
      std::memcpy(copy, piece.parameter, static_cast<size_t>(piece.count) * sizeof(float));
    if (copy && span.copy_dtype == DType::bfloat16) narrow_bfloat16(piece.parameter, copy, piece.count);
    if (copy && span.copy_dtype == DType::float16) narrow_float16(piece.parameter, copy, piece.count);
  }
}

}  // namespace runner
