// The parts of data files whose tokens are one file of the cache each, so that work that was interrupted continues with the parts that
// are missing, and a training can begin while later parts are not tokenised yet.
#pragma once
#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"

namespace runner {

// Lines about the progress of tokenising.

struct TokenizingStopped : std::exception {};

/// Safe to use from several threads.
class TokenizingProgress {
 public:
  /// At most one line in `quiet_seconds`.
  explicit TokenizingProgress(size_t total_bytes, double quiet_seconds = 2)
      : total_bytes_(total_bytes), quiet_seconds_(quiet_seconds) {}
  /// Adds what was tokenised since the last call.
  void add(size_t bytes, int64_t tokens);
  /// Adds bytes whose tokens were found in the cache: they are done, but say nothing about the time that is left.
  void skip(size_t bytes);
  /// From now on, add() and go_on() throw TokenizingStopped on all threads.
  void stop() { stopped_ = true; }
  void go_on() const {
    if (stopped_) throw TokenizingStopped();
  }
  /// The last line, if add() has printed one.
  void finish();

 private:
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  size_t total_bytes_, bytes_ = 0, skipped_ = 0;
  double quiet_seconds_;
  int64_t tokens_ = 0;
  double begun_ = steady_seconds(), last_line_ = begun_;
  bool printed_ = false;
};

/// The bytes of a part, for files of `all` bytes together. A process maps every part, and Linux allows it 65,530 mappings, so there are at
/// most about 4,096 parts, or one for each file if these are more.
using PartBytes = size_t (*)(size_t all);

/// At least 8 MiB, so that small data are few files.
inline size_t cached_part_bytes(size_t all) { return std::max(size_t{8} << 20, all / 4096); }
/// For data.streaming: at least 4 MiB. The first part is then tokenised within about a second.
inline size_t streamed_part_bytes(size_t all) { return std::max(size_t{4} << 20, all / 4096); }

/// The parts are in the order of the data. All functions may be called from several threads.
class TokenParts {
 public:
  virtual ~TokenParts() = default;
  virtual size_t count() const = 0;
  /// The size of the data in a part.
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
/// The size of the data in some parts.
size_t bytes_of(const TokenParts& parts, PartRange range);
/// All parts in ranges of at least `bytes`, except the last one.
std::vector<PartRange> ranges_of(const TokenParts& parts, size_t bytes);
/// The files of some parts. Without `progress`, they are made on one core and nothing is printed.
std::vector<fs::path> make_range(const TokenParts& parts, PartRange range, TokenizingProgress* progress);

/// Tokenises parts in the background, in order, with a lower priority than the training. The destructor ends this, and waits for at most
/// 10 seconds. A part that is not complete is removed from the cache.
class BackgroundTokenizing {
 public:
  explicit BackgroundTokenizing(std::shared_ptr<const TokenParts> parts);
  ~BackgroundTokenizing();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  ///< the thread has it, too
};

}  // namespace runner
