// The fields of binary messages: little-endian numbers, texts with a length, and values. Reading checks every length.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace runner::swarm {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::vector<uint8_t>;

/// A peer has sent what no peer of this swarm sends: a message that is malformed, too long, unknown, or not authentic.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// A peer cannot be reached, has closed the connection, or did not answer in time.
struct ConnectionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ByteWriter {
 public:
  template <typename Number>
  ByteWriter& number(Number value) {
    static_assert(std::is_arithmetic_v<Number>);
    return raw(&value, sizeof value);
  }
  /// At most 65,535 bytes.
  ByteWriter& text(const std::string& value) {
    if (value.size() > UINT16_MAX) throw std::length_error("a text of a message has more than 65,535 bytes");
    number(static_cast<uint16_t>(value.size()));
    return raw(value.data(), value.size());
  }
  ByteWriter& bytes(std::span<const uint8_t> value) { return raw(value.data(), value.size()); }
  const Bytes& done() const { return bytes_; }
  Bytes take() { return std::move(bytes_); }

 private:
  ByteWriter& raw(const void* data, size_t size) {
    const auto* first = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
    return *this;
  }
  Bytes bytes_;
};

/// Throws ProtocolError where the message is too short.
class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  template <typename Number>
  Number number() {
    Number value;
    const auto from = take(sizeof value);
    std::memcpy(&value, from.data(), sizeof value);
    return value;
  }
  /// `most`: bytes.
  std::string text(size_t most) {
    const auto size = number<uint16_t>();
    if (size > most) throw ProtocolError("a text of a message is too long");
    const auto from = take(size);
    return {from.begin(), from.end()};
  }
  std::span<const uint8_t> take(size_t count) {
    if (count > rest_.size()) throw ProtocolError("a message is too short");
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  std::span<const uint8_t> rest() { return take(rest_.size()); }
  /// Throws if there is more.
  void end() const {
    if (!rest_.empty()) throw ProtocolError("a message is too long");
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace runner::swarm
