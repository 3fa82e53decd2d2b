// An order of samples in which neighbours have similar lengths, so that little padding is needed.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "runner/data/data.hpp"

namespace runner {

/// Samples are shuffled, then sorted by length within windows of `window` positions. Runs of `run` samples of a sorted window are
/// shuffled again, so that long samples do not come together. Depends only on lengths, seed and epoch. May be used by several
/// threads.
class LengthBuckets {
 public:
  static constexpr int64_t run = 32, window = 128 * run;
  LengthBuckets(int64_t size, std::function<int64_t(int64_t sample)> length)
      : size_(size), length_(std::move(length)) {}
  int64_t at(int64_t epoch, int64_t position, int64_t seed) const;

 private:
  std::vector<int64_t> window_at(int64_t epoch, int64_t first, int64_t seed) const;

  int64_t size_;
  std::function<int64_t(int64_t)> length_;
  mutable std::mutex mutex_;  ///< guards the window that was used last
  mutable int64_t epoch_ = -1, first_ = -1, seed_ = 0;
  mutable std::vector<int64_t> samples_;
};

}  // namespace runner
