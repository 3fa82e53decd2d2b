// A group's view of the shared segment: barriers that notice dead peers, and staging buffers. Works alike for processes (a memfd)
// and for threads (process memory).
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "strategies/collective/shm_layout.hpp"

namespace runner {

/// Memory that all ranks of a host see. Zero-filled at first.
class SharedSegment {
 public:
  /// Maps the supervisor's memfd. Throws Error(environment).
  static std::shared_ptr<SharedSegment> map(int fd, int ranks);
  /// Process memory, for ranks that are threads.
  static std::shared_ptr<SharedSegment> allocate(int ranks);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;

  std::byte* area(int index) const;
  int ranks() const { return ranks_; }

 private:
  SharedSegment(std::byte* data, size_t bytes, int ranks) : data_(data), bytes_(bytes), ranks_(ranks) {}
  std::byte* data_;
  size_t bytes_;
  int ranks_;
};

/// One rank's place in one area.
class SegmentGroup {
 public:
  /// `world_ranks[i]` is what rank i of the group is called in messages.
  SegmentGroup(std::shared_ptr<SharedSegment> segment, int area, int rank, std::vector<int> world_ranks,
               std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  std::byte* slot(int rank, int half) const;

  /// Says what this rank is doing; checked against the others by the first barrier of a collective.
  void announce(const ShmOperation& operation) { area_->ranks[rank_].operations[operation.sequence % 2] = operation; }
  /// Waits for all ranks. Throws c10::DistBackendError when a rank is gone, has given up, or does not come before the timeout.
  void barrier();
  /// After a barrier: throws when another rank announced something else.
  void check_agreement() const;
  /// Wakes everybody with an error, now and later.
  void abort();

 private:
  [[noreturn]] void fail(const std::string& why) const;
  void watch_peers(double waited) const;

  std::shared_ptr<SharedSegment> segment_;
  ShmArea* area_;
  std::byte* slots_;
  int rank_;
  std::vector<int> world_ranks_;
  std::chrono::milliseconds timeout_;
  int spins_;
};

}  // namespace runner
