// NF4, a 4-bit format for frozen weights (Dettmers et al. 2023, QLoRA, arXiv:2305.14314), as bitsandbytes defines it. Torch-free.
//
// 64 consecutive elements of a parameter are a block. A block has a factor, its largest absolute value, and each element is the nearest
// of 16 levels, multiplied by the factor. With double quantization the factors have 8 bits: minus their mean, they are quantized in
// groups of 256, each with a factor of its own in fp32.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "strategies/contract/quantized_adam.hpp"

namespace runner {

constexpr int64_t nf4_block = 64;   ///< elements
constexpr int64_t nf4_group = 256;  ///< factors

/// Ascending, from -1 to 1; the values of codes 0 to 15.
extern const std::array<float, 16> nf4_levels;
/// Quantizes blocks; the last one may be shorter. `packed` has two codes in a byte, that of the first element in the high half, and a 0
/// after an odd number of elements. `factors` has one element for each block.
void nf4_quantize(std::span<const float> values, std::span<uint8_t> packed, std::span<float> factors);
/// The reverse.
void nf4_dequantize(std::span<const uint8_t> packed, std::span<const float> factors, std::span<float> out);

/// The factors of one parameter with double quantization.
struct Nf4Factors {
  float mean = 0;
  std::vector<float> groups;   ///< for each group, the factor of its codes
  std::vector<uint8_t> codes;  ///< of signed_map(), one for each block

  explicit Nf4Factors(std::span<const float> factors);
  float of_block(size_t block) const { return signed_map()[codes[block]] * groups[block / nf4_group] + mean; }
};

}  // namespace runner
