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

}  // namespace runner
