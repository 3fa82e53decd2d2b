// How values are sent: as they are, or in fewer bits. Sources: compression/floating.py and quantization.py of hivemind.
#pragma once
#include <span>
#include <string>

#include "strategies/hivemind/bytes.hpp"

namespace runner::swarm {

/// Bytes that a compression adds to the values of a piece, at most.
inline constexpr size_t codebook_bytes = 256 * sizeof(float);

enum class Compression : uint8_t {
  none,     ///< float32
  float16,  ///< clamped to the largest float16
  /// 256 steps of 6 sigma / 256 around the mean. A step's value is the mean of what falls into it.
  uniform_8bit,
  /// Blocks of 4096 values: the largest magnitude of a block, and 8-bit integers in proportion to it.
  blockwise_8bit,
};
/// The names are those of the enumeration. Throws std::out_of_range.
Compression compression_of(const std::string& name);

Bytes compress(Compression kind, std::span<const float> values);
/// Throws ProtocolError if the bytes are not those of so many values.
std::vector<float> decompress(Compression kind, std::span<const uint8_t> bytes, size_t count);

}  // namespace runner::swarm
