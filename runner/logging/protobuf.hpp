// Messages of protocol buffers (protobuf.dev, "Encoding"): written with their fields in the order of the calls, and read field by field.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "runner/base/error.hpp"

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

namespace runner {

struct ProtobufField {
  int number = 0;
  uint64_t whole = 0;           ///< of a varint, or the bits of a fixed number
  std::string_view bytes = {};  ///< of a string, bytes or a message

  double real64() const {
    double value = 0;
    std::memcpy(&value, &whole, sizeof value);
    return value;
  }
  float real32() const {
    const auto bits = static_cast<uint32_t>(whole);
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  int64_t integer() const { return static_cast<int64_t>(whole); }
};

/// The fields of a message, in order. Throws Error(environment) if it is cut or has a wire type that there is not.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) : rest_(message) {}
  bool next(ProtobufField& field) {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    field = {.number = static_cast<int>(key >> 3)};
    switch (key & 7) {
      case 0:
        field.whole = varint();
        break;
      case 1:
        field.whole = fixed<uint64_t>();
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.whole = fixed<uint32_t>();
        break;
      default:
        throw environment_error("a message has a field of wire type {}", key & 7);
    }
    return true;
  }

 private:
  std::string_view take(uint64_t bytes) {
    if (bytes > rest_.size()) throw environment_error("a message is cut");
    const auto taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw environment_error("a message has a number of more than 64 bits");
  }
  template <typename Number>
  Number fixed() {
    Number number = 0;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }

  std::string_view rest_;
};

}  // namespace runner
