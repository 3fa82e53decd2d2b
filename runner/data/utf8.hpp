// UTF-8 in large texts: checked piece by piece, and cut where a tokenizer does not notice.
#pragma once
#include <cstddef>
#include <string_view>

#include "runner/base/files.hpp"

namespace runner {

inline std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Throws Error(usage) with path, offset and line when a character that touches bytes [begin, end) of `text` is not
/// valid. `text` is the whole of the file at `path`; only the bytes near the range are read, unless there is an error
/// to place.
void check_utf8(const fs::path& path, std::string_view text, size_t begin, size_t end);

/// The first part of `text`, at most `bytes_max` (>= 4) long: all of it, else up to and with the last line end, else up
/// to the last gap between words, else up to a character's end. Never empty unless `text` is.
std::string_view first_chunk(std::string_view text, size_t bytes_max);

}  // namespace runner
