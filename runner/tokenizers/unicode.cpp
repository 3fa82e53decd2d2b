// Classes of characters, lower case, grapheme clusters, and normal forms with the change that led to each character.
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

bool untouched(char32_t c) { return within(c, unnormalized_ranges, unnormalized_ranges_size); }

int combining_class(char32_t c) {
  if (c < 0x300 || untouched(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

/// The decomposed text, with marks in canonical order.
class Decomposition {
 public:
  explicit Decomposition(bool compatible)
      : options_(static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                (compatible ? UTF8PROC_COMPAT : 0))) {}
  void add(char32_t c) {
    if (c < 0xa0 || untouched(c)) return push(c, 0);
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options_, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) push(static_cast<char32_t>(parts[i]), i > 0 ? 1 : 0);
  }
  std::vector<Change>& finish() {
    sort_pending();
    return out_;
  }

 private:
  void push(char32_t c, int change) {
    if (combining_class(c) == 0) sort_pending();
    out_.push_back({c, change});
    if (combining_class(c) == 0) ready_ = out_.size();
  }
  void sort_pending() {
    std::stable_sort(out_.begin() + static_cast<ptrdiff_t>(ready_), out_.end(),
                     [](const Change& a, const Change& b) { return combining_class(a.c) < combining_class(b.c); });
    ready_ = out_.size();
  }

  utf8proc_option_t options_;
  std::vector<Change> out_;
  size_t ready_ = 0;
};

/// The composition of two characters; 0: there is none.
char32_t composed(char32_t first, char32_t second) {
  if (second < 0x300 || untouched(first) || untouched(second)) return 0;
  utf8proc_int32_t pair[3] = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second), 0};
  const auto length =
      utf8proc_normalize_utf32(pair, 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  const auto c = static_cast<char32_t>(pair[0]);
  return length == 1 && !untouched(c) ? c : 0;
}

/// Canonical composition. A mark is blocked from the starter by a mark of the same or a higher class between them.
void compose(const std::vector<Change>& in, std::vector<Change>& out) {
  std::vector<Change> marks;  // between the starter and the current character
  bool has_starter = false;
  Change starter{};
  int last_class = -1;  // of `marks`
  const auto flush = [&] {
    if (has_starter) out.push_back(starter);
    out.insert(out.end(), marks.begin(), marks.end());
    marks.clear();
    last_class = -1;
  };
  for (const auto& item : in) {
    const int own_class = combining_class(item.c);
    if (!has_starter) {
      if (own_class != 0) {
        out.push_back(item);
        continue;
      }
      starter = item;
      has_starter = true;
      continue;
    }
    if (last_class < own_class)
      if (const char32_t c = composed(starter.c, item.c)) {
        starter = {c, starter.change + item.change - 1};
        continue;
      }
    if (own_class == 0) {
      flush();
      starter = item;
    } else {
      marks.push_back(item);
      last_class = own_class;
    }
  }
  flush();
}

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

void normalize(std::string_view text, NormalForm form, std::vector<Change>& out) {
  Decomposition decomposition(form == NormalForm::nfkc || form == NormalForm::nfkd);
  for (size_t i = 0; i < text.size();) decomposition.add(next(text, i));
  out.clear();
  if (form == NormalForm::nfd || form == NormalForm::nfkd)
    std::swap(out, decomposition.finish());
  else
    compose(decomposition.finish(), out);
}

}  // namespace runner::unicode
