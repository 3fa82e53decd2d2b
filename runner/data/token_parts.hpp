// The parts of data files whose tokens are one file of the cache each, so that work that was interrupted continues with the parts that
// are missing, and a training can begin while later parts are not tokenised yet.
#pragma once
#include <algorithm>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/data/tokenizing_progress.hpp"

namespace runner {

/// The bytes of a part, for files of `all` bytes together. A process maps every part, and Linux allows it 65,530 mappings, so there are at
/// most about 4,096 parts, or one for each file if these are more.
using PartBytes = size_t (*)(size_t all);

/// At least 8 MiB, so that small data are few files.
inline size_t cached_part_bytes(size_t all) { return std::max(size_t{8} << 20, all / 4096); }
/// For data.streaming: at least 4 MiB. The first part is then tokenised within about a second.
inline size_t streamed_part_bytes(size_t all) { return std::max(size_t{4} << 20, all / 4096); }

/// In the order of the data. All functions may be called from several threads.
class TokenParts {
 public:
  virtual ~TokenParts() = default;
  virtual size_t count() const = 0;
  /// Of the data in a part.
  virtual size_t bytes(size_t part) const = 0;
  /// How many make() calls at once use all cores.
  virtual size_t threads() const = 0;
  /// The file of a part in the cache. It is made unless it exists; of several processes that want it, one makes it, and the others
  /// wait. Throws Error(usage) for data that cannot be read. Without `progress`, nothing is printed.
  virtual fs::path make(size_t part, TokenizingProgress* progress) const = 0;
};

/// The files of all parts, made on all cores.
std::vector<fs::path> make_parts(const TokenParts& parts);

/// Parts [first, last).
struct PartRange {
  size_t first, last;
};
/// Of the data in some parts.
size_t bytes_of(const TokenParts& parts, PartRange range);
/// All parts in ranges of at least `bytes`, except the last one.
std::vector<PartRange> ranges_of(const TokenParts& parts, size_t bytes);
/// The files of some parts. Without `progress`, they are made on one core and nothing is printed.
std::vector<fs::path> make_range(const TokenParts& parts, PartRange range, TokenizingProgress* progress);

}  // namespace runner
