#include "runner/data/token_parts.hpp"

#include "runner/data/parallel_for.hpp"

namespace runner {

std::vector<fs::path> make_range(const TokenParts& parts, PartRange range, TokenizingProgress* progress) {
  std::vector<fs::path> files(range.last - range.first);
  parallel_for(
      files.size(), [&](size_t i) { files[i] = parts.make(range.first + i, progress); },
      progress ? parts.threads() : 1);
  return files;
}

size_t bytes_of(const TokenParts& parts, PartRange range) {
  size_t bytes = 0;
  for (size_t part = range.first; part < range.last; ++part) bytes += parts.bytes(part);
  return bytes;
}

std::vector<fs::path> make_parts(const TokenParts& parts) {
  TokenizingProgress progress(bytes_of(parts, {0, parts.count()}));
  auto files = make_range(parts, {0, parts.count()}, &progress);
  progress.finish();
  return files;
}

std::vector<PartRange> ranges_of(const TokenParts& parts, size_t bytes) {
  std::vector<PartRange> ranges;
  size_t collected = bytes;
  for (size_t part = 0; part < parts.count(); ++part) {
    if (collected >= bytes) {
      ranges.push_back({part, part});
      collected = 0;
    }
    collected += parts.bytes(part);
    ranges.back().last = part + 1;
  }
  return ranges;
}

}  // namespace runner
