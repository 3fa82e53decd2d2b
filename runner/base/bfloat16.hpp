// Conversions between bfloat16 and float32 in host memory, vectorised for the CPU they run on. A bfloat16 is the upper half of a
// float32.
#pragma once
#include <cstdint>

namespace runner {

void widen_bfloat16(const uint16_t* from, float* to, int64_t count);
/// Rounds to nearest even. NaN becomes 0x7fc0.
void narrow_bfloat16(const float* from, uint16_t* to, int64_t count);

}  // namespace runner
