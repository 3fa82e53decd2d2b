// Cuts text between characters, words and lines.
#pragma once
#include <cstddef>
#include <string_view>

#include "runner/base/utf8.hpp"

namespace runner {

/// The start of the character at `position`, at most three bytes before it.
inline size_t character_start(std::string_view text, size_t position) {
  size_t lowest = position < 3 ? 0 : position - 3;
  while (position > lowest && position < text.size() && unicode::continues(text[position])) --position;
  return position;
}

/// The first part of `text`, at most `bytes_max` (>= 4) bytes: all of it if it fits; otherwise up to and including the last line
/// end; otherwise up to the last space between words; otherwise up to the end of a character. Empty only if `text` is empty.
inline std::string_view first_chunk(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::string_view head = text.substr(0, bytes_max);
  if (size_t line_end = head.rfind('\n'); line_end != std::string_view::npos) return head.substr(0, line_end + 1);
  size_t space = head.rfind(' ');
  if (space != std::string_view::npos) {
    // Spaces stay with the next word, and a run of spaces is not split.
    size_t word_end = head.substr(0, space).find_last_not_of(' ');
    if (word_end != std::string_view::npos) return head.substr(0, word_end + 1);
  }
  return head.substr(0, character_start(text, bytes_max));
}

}  // namespace runner
