// Writes messages of protocol buffers (protobuf.dev, "Encoding"): fields in the order of the calls.
#pragma once
#include <bit>
#include <cstdint>
#include <string>

namespace runner::protobuf {

static_assert(std::endian::native == std::endian::little, "protocol buffers are little-endian");

/// The bytes of a number as they are in memory.
template <typename Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

inline std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

/// The number of a field and its wire type, then the value.
inline std::string number_field(int field, int64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(static_cast<uint64_t>(value));
}
inline std::string double_field(int field, double value) {
  return varint(static_cast<uint64_t>(field) << 3 | 1) + bytes_of(value);
}
inline std::string float_field(int field, float value) {
  return varint(static_cast<uint64_t>(field) << 3 | 5) + bytes_of(value);
}
/// A message, a string or bytes.
inline std::string message_field(int field, const std::string& content) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(content.size()) + content;
}

}  // namespace runner::protobuf
