// AdamW whose two states are kept in 8 bits: blocks of 256 elements share a scale, and a code is an index into a table of 256 values
// that are denser near 0. This header is torch-free.
// Source: Dettmers et al., 8-bit Optimizers via Block-wise Quantization (ICLR 2022); bitsandbytes (functional.py, create_dynamic_map).
#pragma once
#include <array>
#include <cstdint>

#include "strategies/contract/host_update.hpp"

namespace runner {

/// The values of codes, ascending, from 0 or -1 to 1.
using QuantizedMap = std::array<float, 256>;
const QuantizedMap& signed_map();
const QuantizedMap& unsigned_map();
/// The 255 values between neighbours. A number has the code i if it is above bound i - 1 and not above bound i.
std::array<float, 255> bounds_of(const QuantizedMap& map);

/// `count` elements of a parameter in host memory, from the beginning of a block. The arrays do not overlap.
struct QuantizedSpan {
  float* parameter = nullptr;
  const void* gradient = nullptr;  ///< float32, bfloat16 or float16; read only
  DType gradient_dtype = DType::float32;
  uint8_t* exp_avg = nullptr;      ///< codes of the signed map
  uint8_t* exp_avg_sq = nullptr;   ///< codes of the unsigned map
  float* exp_avg_scale = nullptr;  ///< largest absolute value of each block; 1 for a block of zeros
  float* exp_avg_sq_scale = nullptr;
  int64_t count = 0;

  /// Elements [begin, begin + count) of this span. `begin` is a multiple of state_block.
  QuantizedSpan cut(int64_t begin, int64_t count) const;
};

/// The states are read, updated in single precision, and quantised again. The parameter's update uses the states before that.
void quantized_adam(const UpdateSettings& settings, const QuantizedSpan& span);

}  // namespace runner
