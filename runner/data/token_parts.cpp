#include "runner/data/token_parts.hpp"

#include "runner/data/parallel_for.hpp"

namespace runner {

std::vector<fs::path> make_parts(const TokenParts& parts) {
  size_t bytes = 0;
  for (size_t part = 0; part < parts.count(); ++part) bytes += parts.bytes(part);
  TokenizingProgress progress(bytes);
  std::vector<fs::path> files(parts.count());
  parallel_for(
      parts.count(), [&](size_t part) { files[part] = parts.make(part, progress); }, parts.threads());
  progress.finish();
  return files;
}

}  // namespace runner
