// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for the authentication of messages.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace runner {

using Digest = std::array<uint8_t, 32>;

/// The hash of bytes that arrive in pieces.
class Sha256 {
 public:
  void add(std::span<const uint8_t> bytes);
  /// The hash of all bytes so far. The object must not be used afterwards.
  Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> rest_ = {};  ///< bytes of a block that is not complete
  size_t held_ = 0;                    ///< number of them
  uint64_t length_ = 0;                ///< all bytes
};

/// Authenticates messages with a key: of the same key, any number of them.
class Hmac {
 public:
  explicit Hmac(std::span<const uint8_t> key);
  void add(std::span<const uint8_t> bytes) { inner_.add(bytes); }
  /// The code of the bytes since the last call.
  Digest finish();

 private:
  Sha256 keyed_inner_, keyed_outer_, inner_;
};

inline std::span<const uint8_t> bytes_of_text(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
/// A random number that is used once: each end of a connection sends one.
using Nonce = std::array<uint8_t, 16>;
Nonce new_nonce();
/// The key of one direction of a connection ("to server", "to client"). It follows from the common key and from what both ends have
/// sent, so a message of another connection or direction is not authentic here.
Hmac key_of_direction(const Digest& key, const char* direction, std::span<const uint8_t> server,
                      std::span<const uint8_t> client);
/// Characters that a secret which users choose has at least.
inline constexpr size_t least_secret = 16;

/// Compares without a time that depends on the place of the first difference.
bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);

}  // namespace runner
