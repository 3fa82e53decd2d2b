#include "runner/chat/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace runner::jinja {
namespace {
constexpr char32_t sigma = 0x3A3, final_sigma = 0x3C2, small_iota = 0x3B9, iota_below = 0x345;

utf8proc_int32_t code(char32_t c) { return static_cast<utf8proc_int32_t>(c); }
char32_t to_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(code(c))); }
char32_t to_upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(code(c))); }
char32_t to_title(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(code(c))); }

struct Range {
  char32_t first, last;
};
template <size_t count>
bool is_in(const Range (&ranges)[count], char32_t c) {
  return std::ranges::any_of(ranges, [c](const Range& range) { return c >= range.first && c <= range.last; });
}
// Unicode's properties Other_Uppercase and Other_Lowercase, and numbers that are no numbers by their category.
constexpr Range other_upper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
constexpr Range other_lower[] = {
    {0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},
    {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},
    {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr Range other_digits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                  {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                  {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                  {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                  {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
constexpr Range other_numbers[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382A, 0x382A},   {0x3B4D, 0x3B4D},   {0x4E00, 0x4E00},
    {0x4E03, 0x4E03},   {0x4E07, 0x4E07},   {0x4E09, 0x4E09},   {0x4E5D, 0x4E5D},   {0x4E8C, 0x4E8C},
    {0x4E94, 0x4E94},   {0x4E96, 0x4E96},   {0x4EBF, 0x4EC0},   {0x4EDF, 0x4EDF},   {0x4EE8, 0x4EE8},
    {0x4F0D, 0x4F0D},   {0x4F70, 0x4F70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516B, 0x516B},   {0x516D, 0x516D},   {0x5341, 0x5341},   {0x5343, 0x5345},   {0x534C, 0x534C},
    {0x53C1, 0x53C4},   {0x56DB, 0x56DB},   {0x58F1, 0x58F1},   {0x58F9, 0x58F9},   {0x5E7A, 0x5E7A},
    {0x5EFE, 0x5EFF},   {0x5F0C, 0x5F0E},   {0x5F10, 0x5F10},   {0x62FE, 0x62FE},   {0x634C, 0x634C},
    {0x67D2, 0x67D2},   {0x6F06, 0x6F06},   {0x7396, 0x7396},   {0x767E, 0x767E},   {0x8086, 0x8086},
    {0x842C, 0x842C},   {0x8CAE, 0x8CAE},   {0x8CB3, 0x8CB3},   {0x8D30, 0x8D30},   {0x9621, 0x9621},
    {0x9646, 0x9646},   {0x964C, 0x964C},   {0x9678, 0x9678},   {0x96F6, 0x96F6},   {0xF96B, 0xF96B},
    {0xF973, 0xF973},   {0xF978, 0xF978},   {0xF9B2, 0xF9B2},   {0xF9D1, 0xF9D1},   {0xF9D3, 0xF9D3},
    {0xF9FD, 0xF9FD},   {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200E2, 0x200E2}, {0x20121, 0x20121},
    {0x2092A, 0x2092A}, {0x20983, 0x20983}, {0x2098C, 0x2098C}, {0x2099C, 0x2099C}, {0x20AEA, 0x20AEA},
    {0x20AFD, 0x20AFD}, {0x20B19, 0x20B19}, {0x22390, 0x22390}, {0x22998, 0x22998}, {0x23B1B, 0x23B1B},
    {0x2626D, 0x2626D}, {0x2F890, 0x2F890}};
// Marks that may be inside a word, such as an apostrophe.
constexpr Range marks_in_words[] = {{'\'', '\''},     {'.', '.'},       {':', ':'},       {0xB7, 0xB7},
                                    {0x387, 0x387},   {0x55F, 0x55F},   {0x5F4, 0x5F4},   {0x2018, 0x2019},
                                    {0x2024, 0x2024}, {0x2027, 0x2027}, {0xFE13, 0xFE13}, {0xFE52, 0xFE52},
                                    {0xFE55, 0xFE55}, {0xFF07, 0xFF07}, {0xFF0E, 0xFF0E}, {0xFF1A, 0xFF1A}};

/// The letters that stand for `c` without regard to case; several for ligatures and for letters that have no upper case themselves.
std::u32string folded(char32_t c) {
  utf8proc_int32_t parts[8];
  int boundary = 0;
  const auto count = utf8proc_decompose_char(code(c), parts, std::size(parts), UTF8PROC_CASEFOLD, &boundary);
  return {parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, std::size(parts))};
}

/// The code points of `c` in upper case, or as the first letter of a word.
void append_upper(std::string& text, char32_t c, bool title = false) {
  const auto parts = c < 0xDF ? std::u32string() : folded(c);
  const auto one = title ? to_title(c) : to_upper(c);
  const bool several = parts.size() > 1 && !is_upper(c) && (!title || c == 0xDF || (one == c && !is_title(c)));
  if (!several) return unicode::append(text, one);
  bool raised = false;
  for (const auto part : parts) {
    const auto upper = to_upper(part);
    unicode::append(text, title && raised ? part == small_iota ? iota_below : part : upper);
    raised = raised || upper != part;
  }
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

/// Unicode's property Case_Ignorable.
bool is_ignorable(char32_t c) {
  switch (utf8proc_category(code(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return is_in(marks_in_words, c);
  }
}

/// Sigma ends a word if a cased letter is before it and none after it.
bool ends_word(const std::vector<std::string_view>& points, size_t at) {
  size_t before = at;
  while (before > 0 && is_ignorable(decode(points[before - 1]))) --before;
  if (before == 0 || !is_cased(decode(points[before - 1]))) return false;
  size_t after = at + 1;
  while (after < points.size() && is_ignorable(decode(points[after]))) ++after;
  return after == points.size() || !is_cased(decode(points[after]));
}

void append_lower(std::string& text, const std::vector<std::string_view>& points, size_t at) {
  char32_t c = decode(points[at]);
  if (c == 0x130) {
    text += "i\xCC\x87";
  } else if (c == sigma && ends_word(points, at)) {
    unicode::append(text, final_sigma);
  } else {
    unicode::append(text, to_lower(c));
  }
}
}  // namespace

std::vector<std::string_view> code_points(std::string_view text) {
  std::vector<std::string_view> points;
  points.reserve(text.size());
  for_each_code_point(text, [&](std::string_view point) { points.push_back(point); });
  return points;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_upper(char32_t c) { return utf8proc_category(code(c)) == UTF8PROC_CATEGORY_LU || is_in(other_upper, c); }
bool is_lower(char32_t c) { return utf8proc_category(code(c)) == UTF8PROC_CATEGORY_LL || is_in(other_lower, c); }
bool is_title(char32_t c) { return utf8proc_category(code(c)) == UTF8PROC_CATEGORY_LT; }

bool is_alpha(char32_t c) {
  const auto category = utf8proc_category(code(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return utf8proc_category(code(c)) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) { return is_decimal(c) || is_in(other_digits, c); }
bool is_numeric(char32_t c) {
  const auto category = utf8proc_category(code(c));
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) || is_in(other_numbers, c);
}

bool is_printable(char32_t c) {
  const auto category = utf8proc_category(code(c));
  return c == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

std::string upper_case(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_code_point(text, [&](std::string_view point) { append_upper(result, decode(point)); });
  return result;
}

std::string lower_case(std::string_view text) {
  std::string result;
  auto points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i) append_lower(result, points, i);
  return result;
}

std::string capitalized(std::string_view text) {
  std::string result;
  auto points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i)
    if (i == 0)
      append_upper(result, decode(points[i]), true);
    else
      append_lower(result, points, i);
  return result;
}

std::string title_case(std::string_view text) {
  std::string result;
  auto points = code_points(text);
  bool inside = false;
  for (size_t i = 0; i < points.size(); ++i) {
    char32_t c = decode(points[i]);
    if (inside)
      append_lower(result, points, i);
    else
      append_upper(result, c, true);
    inside = is_cased(c);
  }
  return result;
}

std::string swapped_case(std::string_view text) {
  std::string result;
  auto points = code_points(text);
  for (size_t i = 0; i < points.size(); ++i) {
    char32_t c = decode(points[i]);
    if (is_upper(c))
      append_lower(result, points, i);
    else if (is_lower(c))
      append_upper(result, c);
    else
      unicode::append(result, c);
  }
  return result;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  const auto* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.npos;
}

std::string_view strip(std::string_view text, Side side, const std::string_view* chars) {
  auto gone = [&](std::string_view point) {
    return chars ? chars->find(point) != chars->npos : is_space(decode(point));
  };
  if (side != Side::right)
    while (!text.empty() && gone(text.substr(0, unicode::length_of(text[0]))))
      text.remove_prefix(unicode::length_of(text[0]));
  while (side != Side::left && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && unicode::continues(text[start])) --start;
    if (!gone(text.substr(start))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t bytes = unicode::length_of(text[at]);
    if (!is_line_end(decode(text.substr(at, bytes)))) {
      at += bytes;
      continue;
    }
    if (text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n') bytes = 2;
    lines.push_back(text.substr(begin, at + (keep_ends ? bytes : 0) - begin));
    begin = at += bytes;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace runner::jinja
