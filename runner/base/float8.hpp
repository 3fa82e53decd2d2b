// Eight floats in one AVX register, for loops that are compiled once for each instruction set (vector_clones.hpp).
#pragma once
#include <cstdint>

namespace runner {

/// Wider vectors would be kept in memory by the clones for instruction sets that lack them.
typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Int8 __attribute__((vector_size(32)));

// Functions are always inlined. A call would leave the instruction set of the caller's clone.
#define RUNNER_VECTOR_INLINE [[gnu::always_inline]] inline

RUNNER_VECTOR_INLINE void load(Float8& vector, const float* from) { __builtin_memcpy(&vector, from, sizeof vector); }
RUNNER_VECTOR_INLINE void store(float* to, const Float8& vector) { __builtin_memcpy(to, &vector, sizeof vector); }

/// x = 2^x for x <= 0.5, within a relative 2e-7; 0 from -127 down. Several vectors at once hide the latency of each
/// step.
template <int vectors>
RUNNER_VECTOR_INLINE void exp2_of_negative(Float8 (&x)[vectors]) {
  constexpr float round_to_integer = 0x1.8p23f;  // after adding it, the integer is in the low bits
  constexpr float coefficients[] = {0.00967151299f, 0.0555073358f, 0.240222424f, 0.693147004f, 1.0f};
  Float8 shifted[vectors], p[vectors];
#pragma GCC unroll 8
  for (int i = 0; i < vectors; ++i) x[i] = -127.0f > x[i] ? Float8{} - 127.0f : x[i];
#pragma GCC unroll 8
  for (int i = 0; i < vectors; ++i) shifted[i] = x[i] + round_to_integer;
#pragma GCC unroll 8
  for (int i = 0; i < vectors; ++i) x[i] -= shifted[i] - round_to_integer;
#pragma GCC unroll 8
  for (int i = 0; i < vectors; ++i) p[i] = Float8{} + 0.00132647273f;
#pragma GCC unroll 5
  for (float c : coefficients)
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) p[i] = p[i] * x[i] + c;
#pragma GCC unroll 8
  for (int i = 0; i < vectors; ++i)
    x[i] = reinterpret_cast<Float8>(reinterpret_cast<Int8>(p[i]) + (reinterpret_cast<Int8>(shifted[i]) << 23));
}

/// to[c * to_stride + r] = from[r * stride + c] for an 8 x 8 square.
RUNNER_VECTOR_INLINE void transpose_square(const float* from, int64_t stride, float* to, int64_t to_stride) {
  constexpr Int8 low1{0, 8, 1, 9, 4, 12, 5, 13}, high1{2, 10, 3, 11, 6, 14, 7, 15};
  constexpr Int8 low2{0, 1, 8, 9, 4, 5, 12, 13}, high2{2, 3, 10, 11, 6, 7, 14, 15};
  constexpr Int8 low4{0, 1, 2, 3, 8, 9, 10, 11}, high4{4, 5, 6, 7, 12, 13, 14, 15};
  constexpr int lanes = 8;
  Float8 x[lanes], y[lanes];
#pragma GCC unroll 8
  for (int i = 0; i < lanes; ++i) load(x[i], from + i * stride);
#pragma GCC unroll 4
  for (int i = 0; i < lanes; i += 2) {
    y[i] = __builtin_shuffle(x[i], x[i + 1], low1);
    y[i + 1] = __builtin_shuffle(x[i], x[i + 1], high1);
  }
#pragma GCC unroll 2
  for (int i = 0; i < lanes; i += 4) {
    x[i] = __builtin_shuffle(y[i], y[i + 2], low2);
    x[i + 1] = __builtin_shuffle(y[i], y[i + 2], high2);
    x[i + 2] = __builtin_shuffle(y[i + 1], y[i + 3], low2);
    x[i + 3] = __builtin_shuffle(y[i + 1], y[i + 3], high2);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store(to + i * to_stride, __builtin_shuffle(x[i], x[i + 4], low4));
    store(to + (i + 4) * to_stride, __builtin_shuffle(x[i], x[i + 4], high4));
  }
}

}  // namespace runner
