// Characters: UTF-8, the classes that tokenizers ask for, lower case, normal forms and grapheme clusters.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace runner::unicode {

/// The bytes of the character that begins with `byte`. The text must be valid UTF-8, as in all of this file.
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
  while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xc0) == 0x80);
  return position;
}
void append(std::string& text, char32_t c);
std::u32string characters(std::string_view text);
size_t count(std::string_view text);  ///< characters
bool is_ascii(std::string_view text);
/// Invalid parts become U+FFFD, one for each longest prefix of a valid character.
std::string with_replacements(std::string_view bytes);

bool is_space(char32_t c);  ///< White_Space
bool is_punctuation(char32_t c);
bool is_number(char32_t c);  ///< N
bool is_other(char32_t c);   ///< control, format, private and surrogate characters
bool is_nonspacing_mark(char32_t c);
bool is_mark(char32_t c);
bool is_word(char32_t c);       ///< letters, marks, decimal digits, connectors and joiners
bool is_ideograph(char32_t c);  ///< the blocks of Chinese characters that BERT separates
/// The full mapping without context; at most 2 characters.
struct Lower {
  char32_t first, second;  ///< second is 0 if there is only one
};
Lower lower(char32_t c);

/// A character of a normal form. `change` says how it came about: 0 replaces a character, 1 was added, -n replaces one and n
/// following characters.
struct Change {
  char32_t c;
  int change;
};
enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// Normal forms (Unicode Standard Annex 15) as the tokenizers library makes them: with the tables of Unicode 9.
void normalize(std::string_view text, NormalForm form, std::vector<Change>& out);
/// Whether a text certainly is in all normal forms.
inline bool surely_normal(std::string_view text) { return is_ascii(text); }

/// The end of the extended grapheme cluster (Unicode Standard Annex 29) that begins at `begin`.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace runner::unicode
