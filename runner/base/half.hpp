// 16-bit floating-point numbers in host memory: IEEE 754 binary16, and bfloat16, which is the upper half of a float32.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace runner {

inline float half_to_float(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu, mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) return std::copysign(static_cast<float>(mantissa) * 0x1p-24f, std::bit_cast<float>(sign));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Rounds to nearest, ties to even. Magnitudes from 65520 on become infinity.
inline uint16_t float_to_half(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  // Below the smallest normal half, the spacing is 2^-24. The last bit of 0.5f has the same value, so the addition rounds.
  if (magnitude < 0x1p-14f)
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(magnitude + 0.5f) - 0x3f000000u));
  uint32_t rest = std::bit_cast<uint32_t>(magnitude) - (112u << 23);
  return static_cast<uint16_t>(sign | ((rest + 0xfffu + ((rest >> 13) & 1u)) >> 13));
}

inline float bfloat16_to_float(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

}  // namespace runner
