// Cuts text between characters, words and lines.
#pragma once
#include <cstddef>
#include <string_view>

namespace runner {

/// The start of the character at `position`, at most three bytes before it.
size_t character_start(std::string_view text, size_t position);

/// The first part of `text`, at most `bytes_max` (>= 4) bytes: all of it if it fits; otherwise up to and including the last line
/// end; otherwise up to the last space between words; otherwise up to the end of a character. Empty only if `text` is empty.
std::string_view first_chunk(std::string_view text, size_t bytes_max);

}  // namespace runner
