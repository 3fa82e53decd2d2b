// GPT-2's characters for bytes: bytes 33-126, 161-172 and 174-255 are their own characters, the others are U+0100 and on.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "runner/tokenizers/unicode.hpp"

namespace runner {

inline const std::array<char32_t, 256>& byte_characters() {
  static const auto table = [] {
    std::array<char32_t, 256> characters{};
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b)
      characters[b] = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++;
    return characters;
  }();
  return table;
}

/// The byte of a character, or -1.
inline int byte_of(char32_t c) {
  static const auto table = [] {
    std::array<int, 0x144> bytes{};
    bytes.fill(-1);
    for (int b = 0; b < 256; ++b) bytes[byte_characters()[static_cast<size_t>(b)]] = b;
    return bytes;
  }();
  return c < table.size() ? table[c] : -1;
}

/// The bytes that a token's characters stand for; nullopt if one of them stands for none.
inline std::optional<std::string> bytes_of(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const int byte = byte_of(unicode::next(token, i));
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

inline std::string characters_of(std::string_view bytes) {
  std::string token;
  for (char byte : bytes) unicode::append(token, byte_characters()[static_cast<unsigned char>(byte)]);
  return token;
}

}  // namespace runner
