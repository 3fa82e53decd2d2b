#include "runner/tokenizers/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <span>

#include "runner/tokenizers/unicode_tables.hpp"

namespace runner::unicode {

namespace {

bool within(char32_t c, const CharacterRange* ranges, size_t size) {
  const std::span list(ranges, size);
  auto after = std::ranges::upper_bound(list, c, {}, &CharacterRange::first);
  return after != list.begin() && c <= std::prev(after)->last;
}

bool is_ascii_letter(char32_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
bool is_ascii_digit(char32_t c) { return c >= '0' && c <= '9'; }

}  // namespace

std::u32string characters(std::string_view text) {
  std::u32string list;
  for (size_t i = 0; i < text.size();) list += next(text, i);
  return list;
}

std::string with_replacements(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    size_t size = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    size_t good = size > 0 ? 1 : 0;
    for (; good > 0 && good < size && i + good < bytes.size(); ++good) {
      const auto b = static_cast<unsigned char>(bytes[i + good]);
      unsigned char low = 0x80, high = 0xbf;
      if (good == 1) {
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
      }
      if (b < low || b > high) break;
    }
    if (size > 0 && good == size)
      text += bytes.substr(i, size);
    else
      text += "\xef\xbf\xbd";
    i += std::max<size_t>(good, 1);
  }
  return text;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7f && !is_ascii_letter(c) && !is_ascii_digit(c);
  return within(c, punctuation_ranges, punctuation_ranges_size);
}

bool is_number(char32_t c) { return c < 0x80 ? is_ascii_digit(c) : within(c, number_ranges, number_ranges_size); }

bool is_other(char32_t c) {
  if (c < 0x80) return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
  return within(c, other_ranges, other_ranges_size);
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 && within(c, nonspacing_mark_ranges, nonspacing_mark_ranges_size);
}

bool is_mark(char32_t c) { return c >= 0x300 && within(c, mark_ranges, mark_ranges_size); }

bool is_word(char32_t c) {
  if (c < 0x80) return is_ascii_letter(c) || is_ascii_digit(c) || c == '_';
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // joiners, and the symbols with the property Alphabetic
      return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
             (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
  }
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

Lower lower(char32_t c) {
  if (c < 0x80) return {c >= 'A' && c <= 'Z' ? c + 32 : c, 0};
  if (c == 0x130) return {'i', 0x307};
  return {static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), 0};
}

size_t grapheme_end(std::string_view text, size_t begin) {
  size_t end = begin;
  utf8proc_int32_t state = 0;
  auto before = static_cast<utf8proc_int32_t>(next(text, end));
  while (end < text.size()) {
    size_t after = end;
    const auto c = static_cast<utf8proc_int32_t>(next(text, after));
    if (utf8proc_grapheme_break_stateful(before, c, &state)) break;
    before = c;
    end = after;
  }
  return end;
}

}  // namespace runner::unicode
