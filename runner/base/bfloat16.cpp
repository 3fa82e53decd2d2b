#include "runner/base/bfloat16.hpp"

#include <bit>

#include "runner/base/vector_clones.hpp"

namespace runner {

RUNNER_VECTOR_CLONES void widen_bfloat16(const uint16_t* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
}

RUNNER_VECTOR_CLONES void narrow_bfloat16(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    auto bits = std::bit_cast<uint32_t>(from[i]);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    to[i] = static_cast<uint16_t>(nan ? 0x7fc0 : rounded);
  }
}

}  // namespace runner
