#include "runner/data/utf8.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"

namespace runner {

namespace {

constexpr size_t window_bytes = 64 * 1024;
/// Beyond this offset, an error has no line number, because counting lines would read the whole text before it.
constexpr size_t line_counted_bytes_max = size_t{256} << 20;

}  // namespace

void check_utf8(const fs::path& path, std::string_view text, size_t begin, size_t end) {
  begin = character_start(text, begin);
  for (size_t extended = 0; extended < 3 && end < text.size() && unicode::continues(text[end]); ++extended) ++end;
  while (begin < end) {
    size_t stop = end - begin <= window_bytes ? end : character_start(text, begin + window_bytes);
    std::string_view window = text.substr(begin, stop - begin);
    auto bad = first_invalid_utf8(window);
    if (bad) {
      size_t offset = begin + *bad;
      std::string line;
      if (offset <= line_counted_bytes_max)
        line = fmt::format(" (line {})",
                           std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n') + 1);
      throw usage_error(
          "{} is not UTF-8: byte 0x{:02x} at offset {}{}; convert it, for example with iconv -f LATIN1 -t UTF-8",
          path.string(), static_cast<unsigned char>(text[offset]), offset, line);
    }
    begin = stop;
  }
}

}  // namespace runner
