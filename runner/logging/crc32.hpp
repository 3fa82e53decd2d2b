// Cyclic redundancy checks of 32 bits, by table.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace runner {

/// The reflected polynomials.
inline constexpr uint32_t castagnoli_polynomial = 0x82f63b78u;  ///< CRC-32C
inline constexpr uint32_t zlib_polynomial = 0xedb88320u;

template <uint32_t polynomial>
uint32_t crc32(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<uint32_t, 256> sums{};
    for (uint32_t i = 0; i < sums.size(); ++i) {
      sums[i] = i;
      for (int bit = 0; bit < 8; ++bit) sums[i] = (sums[i] >> 1) ^ (sums[i] & 1 ? polynomial : 0u);
    }
    return sums;
  }();
  uint32_t sum = ~0u;
  for (char c : bytes) sum = table[(sum ^ static_cast<unsigned char>(c)) & 0xff] ^ (sum >> 8);
  return ~sum;
}

}  // namespace runner
