// Code points of UTF-8 text: counting, slicing, Python's classes of characters, and upper and lower case.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/utf8.hpp"

namespace runner::jinja {

template <typename Function>
void for_each_code_point(std::string_view text, Function&& function) {
  for (size_t at = 0; at < text.size();) {
    size_t bytes = unicode::length_of(text[at]);
    function(text.substr(at, bytes));
    at += bytes;
  }
}
inline int64_t count_code_points(std::string_view text) { return static_cast<int64_t>(unicode::count(text)); }
std::vector<std::string_view> code_points(std::string_view text);
inline char32_t decode(std::string_view point) {
  size_t begin = 0;
  return unicode::next(point, begin);
}

bool is_space(char32_t point);
bool is_line_end(char32_t point);
bool is_upper(char32_t point);
bool is_lower(char32_t point);
/// Whether it is one letter of an upper-case and a lower-case one, as U+01C5.
bool is_title(char32_t point);
inline bool is_no_upper(char32_t point) { return is_lower(point) || is_title(point); }
inline bool is_no_lower(char32_t point) { return is_upper(point) || is_title(point); }
bool is_alpha(char32_t point);
/// Digits of decimal numbers; those and others, as in squares; those and all other numbers, as one half.
bool is_decimal(char32_t point);
bool is_digit(char32_t point);
bool is_numeric(char32_t point);
/// False for characters that repr() escapes.
bool is_printable(char32_t point);

std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
/// The first letter in upper case, the others in lower case.
std::string capitalized(std::string_view text);
/// Each run of letters capitalized.
std::string title_case(std::string_view text);
std::string swapped_case(std::string_view text);

/// The position that std::string_view::find gives, in linear time for every text.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);

/// Without the white space, or the code points of `*chars`, at its ends.
enum class Side { both, left, right };
std::string_view strip(std::string_view text, Side side, const std::string_view* chars = nullptr);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace runner::jinja
