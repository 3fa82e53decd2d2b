// Vector clocks over the streams of one device: they say which tasks come before a moment.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace runner::simulated {

/// For each stream, by its index on the device, how many of its tasks come before. Tasks of a stream count from 1.
class Clock {
 public:
  uint64_t of(size_t stream) const { return stream < tasks_.size() ? tasks_[stream] : 0; }

  /// Everything ordered before `other` is now also ordered before this clock.
  void join(const Clock& other) {
    if (tasks_.size() < other.tasks_.size()) tasks_.resize(other.tasks_.size());
    for (size_t i = 0; i < other.tasks_.size(); ++i) tasks_[i] = std::max(tasks_[i], other.tasks_[i]);
  }

  /// One more task of `stream`; returns its number.
  uint64_t tick(size_t stream) {
    if (tasks_.size() <= stream) tasks_.resize(stream + 1);
    return ++tasks_[stream];
  }

 private:
  std::vector<uint64_t> tasks_;
};

}  // namespace runner::simulated
