#include "runner/base/utf8.hpp"

#include <algorithm>

namespace runner::unicode {

void append(std::string& text, char32_t c) {
  const auto byte = [&](char32_t bits) { text += static_cast<char>(bits); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) {
    byte(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      byte(0xe0 | c >> 12);
    } else {
      byte(0xf0 | c >> 18);
      byte(0x80 | (c >> 12 & 0x3f));
    }
    byte(0x80 | (c >> 6 & 0x3f));
  }
  byte(0x80 | (c & 0x3f));
}

size_t count(std::string_view text) {
  return text.size() - static_cast<size_t>(std::ranges::count_if(text, continues));
}

bool is_ascii(std::string_view text) {
  unsigned char any = 0;
  for (char c : text) any |= static_cast<unsigned char>(c);
  return any < 0x80;
}

}  // namespace runner::unicode
