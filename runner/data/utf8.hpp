// UTF-8 in large texts: checks ranges.
#pragma once
#include <cstddef>
#include <string_view>

#include "runner/base/files.hpp"
#include "runner/tokenizers/first_chunk.hpp"

namespace runner {

inline std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Throws Error(usage) with path, offset and line if a character that overlaps bytes [begin, end) of `text` is not valid. `text`
/// is the complete file at `path`. Only bytes near the range are read, except to find the line of an error.
void check_utf8(const fs::path& path, std::string_view text, size_t begin, size_t end);

}  // namespace runner
