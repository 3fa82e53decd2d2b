// Code points of UTF-8 text: counting, slicing, Python's classes of characters, and upper and lower case.
//
// Case is mapped for Latin (also Extended-A and Additional), Greek, Cyrillic, Armenian and full-width letters. Letters of other
// scripts with case (Georgian, Cherokee, Deseret ..) and the Greek letters whose upper case is several characters are unchanged.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace runner::jinja {

bool is_ascii(std::string_view text);
/// The number of bytes of the code point that begins with `first`. The text must be valid UTF-8.
inline size_t bytes_of_point(char first) {
  auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
template <typename Function>
void for_each_code_point(std::string_view text, Function&& function) {
  for (size_t at = 0; at < text.size();) {
    size_t bytes = bytes_of_point(text[at]);
    function(text.substr(at, bytes));
    at += bytes;
  }
}
int64_t count_code_points(std::string_view text);
std::vector<std::string_view> code_points(std::string_view text);
char32_t decode(std::string_view point);
void append_code_point(std::string& text, char32_t point);

bool is_space(char32_t point);
bool is_line_end(char32_t point);
bool is_upper(char32_t point);
bool is_lower(char32_t point);
/// Letters by ranges of scripts; exact for Latin, Greek and Cyrillic.
bool is_alpha(char32_t point);
/// False for characters that repr() escapes.
bool is_printable(char32_t point);

std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
/// The first letter in upper case, the others in lower case.
std::string capitalized(std::string_view text);
/// Each run of letters capitalized.
std::string title_case(std::string_view text);
std::string swapped_case(std::string_view text);

/// As std::string_view::find, in linear time for every text.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);

/// Without the white space, or the code points of `*chars`, at its ends.
enum class Side { both, left, right };
std::string_view strip(std::string_view text, Side side, const std::string_view* chars = nullptr);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace runner::jinja
