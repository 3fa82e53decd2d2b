#include "runner/chat/unicode.hpp"

#include <algorithm>
#include <cstring>

namespace runner::jinja {
namespace {
struct PairRange {  // neighbours: upper case, then lower case
  char32_t first, last;
};
constexpr PairRange even_pairs[] = {{0x100, 0x12F}, {0x132, 0x137}, {0x14A, 0x177},   {0x460, 0x481},
                                    {0x48A, 0x4BF}, {0x4D0, 0x52F}, {0x1E00, 0x1E95}, {0x1EA0, 0x1EFF},
                                    {0x3D8, 0x3EF}, {0x222, 0x233}, {0x1F8, 0x21F}};
constexpr PairRange odd_pairs[] = {{0x139, 0x148}, {0x179, 0x17E}, {0x4C1, 0x4CE}, {0x1CD, 0x1DC}};
struct Shift {  // upper case + distance = lower case
  char32_t first, last, distance;
};
constexpr Shift shifts[] = {{'A', 'Z', 32},     {0xC0, 0xD6, 32},    {0xD8, 0xDE, 32},   {0x391, 0x3A1, 32},
                            {0x3A3, 0x3AB, 32}, {0x388, 0x38A, 37},  {0x386, 0x386, 38}, {0x38C, 0x38C, 64},
                            {0x38E, 0x38F, 63}, {0x410, 0x42F, 32},  {0x400, 0x40F, 80}, {0x4C0, 0x4C0, 15},
                            {0x531, 0x556, 48}, {0xFF21, 0xFF3A, 32}};
constexpr char32_t sigma = 0x3A3, final_sigma = 0x3C2;

char32_t to_lower(char32_t c) {
  for (auto& shift : shifts)
    if (c >= shift.first && c <= shift.last) return c + shift.distance;
  for (auto& range : even_pairs)
    if (c >= range.first && c <= range.last) return c % 2 == 0 ? c + 1 : c;
  for (auto& range : odd_pairs)
    if (c >= range.first && c <= range.last) return c % 2 == 1 ? c + 1 : c;
  return c == 0x178 ? 0xFF : c == 0x1E9E ? 0xDF : c;
}

char32_t to_upper(char32_t c) {
  for (auto& shift : shifts)
    if (c >= shift.first + shift.distance && c <= shift.last + shift.distance && c != 0xF7) return c - shift.distance;
  for (auto& range : even_pairs)
    if (c >= range.first && c <= range.last) return c % 2 == 1 ? c - 1 : c;
  for (auto& range : odd_pairs)
    if (c >= range.first && c <= range.last) return c % 2 == 0 ? c - 1 : c;
  switch (c) {
    case 0xB5:
      return 0x39C;
    case 0xFF:
      return 0x178;
    case 0x131:
      return 'I';
    case 0x17F:
      return 'S';
    case final_sigma:
      return sigma;
    default:
      return c;
  }
}

/// The code points of `c` in upper case; of ß and ŉ two.
void append_upper(std::string& text, char32_t c, bool title = false) {
  if (c == 0xDF) {
    text += title ? "Ss" : "SS";
  } else if (c == 0x149) {
    append_code_point(text, 0x2BC);
    text += 'N';
  } else {
    append_code_point(text, to_upper(c));
  }
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c); }

/// Sigma ends a word if a cased letter is before it and none after it.
bool ends_word(const std::vector<std::string_view>& points, size_t at) {
  auto ignorable = [](char32_t c) {
    return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || c == '^' || c == '`' || c == 0xAD;
  };
  size_t before = at;
  while (before > 0 && ignorable(decode(points[before - 1]))) --before;
  if (before == 0 || !is_cased(decode(points[before - 1]))) return false;
  size_t after = at + 1;
  while (after < points.size() && ignorable(decode(points[after]))) ++after;
  return after == points.size() || !is_cased(decode(points[after]));
}

void append_lower(std::string& text, const std::vector<std::string_view>& points, size_t at) {
  char32_t c = decode(points[at]);
  if (c == 0x130) {
    text += "i\xCC\x87";
  } else if (c == sigma && ends_word(points, at)) {
    append_code_point(text, final_sigma);
  } else {
    append_code_point(text, to_lower(c));
  }
}
}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::vector<std::string_view> code_points(std::string_view text) {
  std::vector<std::string_view> points;
  points.reserve(text.size());
  for_each_code_point(text, [&](std::string_view point) { points.push_back(point); });
  return points;
}

char32_t decode(std::string_view point) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(point[i])); };
  switch (point.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

void append_code_point(std::string& text, char32_t c) {
  auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6), add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 0x3F)), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  }
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_upper(char32_t c) { return to_lower(c) != c || c == 0x130; }
bool is_lower(char32_t c) {
  return (to_upper(c) != c && c != 0x345) || c == 0xDF || c == 0xAA || c == 0xBA || c == 0x138 || c == 0x149 ||
         c == 0x390 || c == 0x3B0;
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c | 32) >= 'a' && (c | 32) <= 'z';
  if (c < 0x100) return c == 0xAA || c == 0xB5 || c == 0xBA || (c >= 0xC0 && c != 0xD7 && c != 0xF7);
  return (c < 0x2C2) ||
         (c >= 0x370 && c < 0x482 && c != 0x375 && c != 0x37E && c != 0x384 && c != 0x385 && c != 0x387) ||
         (c >= 0x48A && c < 0x530) || (c >= 0x531 && c <= 0x556) || (c >= 0x561 && c <= 0x587) ||
         (c >= 0x5D0 && c <= 0x5EA) || (c >= 0x620 && c <= 0x64A) || (c >= 0x904 && c <= 0x939) ||
         (c >= 0xE01 && c <= 0xE30) || (c >= 0x10A0 && c <= 0x10FF) || (c >= 0x1E00 && c <= 0x1FBC) ||
         (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xFF21 && c <= 0xFF3A) ||
         (c >= 0xFF41 && c <= 0xFF5A) || (c >= 0x20000 && c <= 0x2FA1F);
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  return !(c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || is_space(c) || (c >= 0x200B && c <= 0x200F) ||
           (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || (c >= 0xD800 && c <= 0xF8FF) ||
           c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB) || c == 0x180E || c == 0xFFFE || c == 0xFFFF ||
           (c >= 0xE0000 && c <= 0xE00FF) || c >= 0xF0000);
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
    else
      append_upper(result, c);
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
    while (!text.empty() && gone(text.substr(0, bytes_of_point(text[0])))) text.remove_prefix(bytes_of_point(text[0]));
  while (side != Side::left && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!gone(text.substr(start))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t bytes = bytes_of_point(text[at]);
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
