// UTF-8: the characters of a text that is valid.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace runner::unicode {

/// Whether a character began before the byte.
inline bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }
/// The bytes of the character that begins with `byte`.
inline size_t length_of(char byte) {
  const auto b = static_cast<unsigned char>(byte);
  return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}
/// The character at `position`, which moves behind it.
inline char32_t next(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t i = position;
  const unsigned char b = byte(i);
  if (b < 0x80) return position += 1, b;
  if (b < 0xe0) return position += 2, (b & 0x1fu) << 6 | (byte(i + 1) & 0x3fu);
  if (b < 0xf0) return position += 3, (b & 0x0fu) << 12 | (byte(i + 1) & 0x3fu) << 6 | (byte(i + 2) & 0x3fu);
  position += 4;
  return (b & 0x07u) << 18 | (byte(i + 1) & 0x3fu) << 12 | (byte(i + 2) & 0x3fu) << 6 | (byte(i + 3) & 0x3fu);
}
/// The first byte of the character that ends before `position` > 0.
inline size_t previous(std::string_view text, size_t position) {
  do --position;
  while (position > 0 && continues(text[position]));
  return position;
}
void append(std::string& text, char32_t c);
size_t count(std::string_view text);  ///< characters
bool is_ascii(std::string_view text);

}  // namespace runner::unicode
