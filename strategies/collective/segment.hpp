// A group's view of the shared segment: barriers that detect dead peers, and staging buffers. It works for processes (a memfd) and
// for threads (process memory).
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "strategies/collective/shm_layout.hpp"

namespace runner {

/// Memory that all ranks of a host share. It is zero-filled at first.
class SharedSegment {
 public:
  /// Maps the supervisor's memfd. Throws Error(environment).
  static std::shared_ptr<SharedSegment> map(int fd, int ranks);
  /// Process memory, for ranks that are threads.
  static std::shared_ptr<SharedSegment> allocate(int ranks);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  std::byte* area(int index) const;
  int ranks() const { return ranks_; }

 private:
  SharedSegment(int flags, int fd, int ranks);
  size_t bytes_;
  std::byte* data_;
  int ranks_;
};

/// One rank's view of one area. Every wait ends: all ranks arrive, or the timeout passes, or a rank of the group fails. After a
/// failure, this call and every later one throws c10::DistBackendError with the reason of the first failed rank.
class SegmentGroup {
 public:
  /// `world_ranks[i]` is the rank in the world of rank i of the group; messages use it.
  SegmentGroup(std::shared_ptr<SharedSegment> segment, int area, int rank, std::vector<int> world_ranks,
               std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  std::byte* slot(int rank, int half) const;

  /// Announces this rank's operation. The first barrier of a collective compares it with those of the other ranks.
  void announce(const Operation& operation) { area_->ranks[rank_].operations[operation.sequence % 2].store(operation); }
  /// Waits for all ranks.
  void barrier();
  /// After a barrier: throws when another rank announced something else.
  void check_agreement() const;
  /// Fails the group for all its ranks.
  void abort();

 private:
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  void set_failure(const std::string& why) const;
  [[noreturn]] void throw_failure() const;
  bool came(uint32_t generation) const { return area_->generation.load(std::memory_order_acquire) != generation; }
  /// Checks, after waiting `waited` seconds for the end of `generation`, for dead peers and for the timeout.
  void look_around(uint32_t generation, double waited) const;
  std::string who_is_late() const;

  std::shared_ptr<SharedSegment> segment_;
  ShmArea* area_;
  std::byte* slots_;
  int rank_;
  std::vector<int> world_ranks_;
  std::chrono::milliseconds timeout_;
  int spins_;
};

}  // namespace runner
