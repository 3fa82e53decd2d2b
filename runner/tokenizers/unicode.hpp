// Characters: the classes that tokenizers ask for, lower case, normal forms and grapheme clusters. Texts must be valid UTF-8.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/utf8.hpp"

namespace runner::unicode {

std::u32string characters(std::string_view text);
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
