// A group's view of the shared segment: barriers that detect dead peers, staging buffers, and a ring of chunks for transfers between
// two ranks. It works for processes (a memfd) and for threads (process memory).
#pragma once
#include <chrono>
#include <memory>
#include <mutex>
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

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int ranks() const { return ranks_; }

 private:
  SharedSegment(int flags, int fd, int ranks);
  size_t bytes_;
  std::byte* data_;
  int ranks_;
};

/// The areas of all groups of a segment, as a rank knows them. Threads may use it at the same time.
class SegmentPlaces {
 public:
  struct Place {
    size_t offset;
    std::vector<int> world_ranks;
    std::string name;
  };
  void add(Place place) {
    std::lock_guard lock(mutex_);
    places_.push_back(std::move(place));
  }
  std::vector<Place> all() const {
    std::lock_guard lock(mutex_);
    return places_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Place> places_;
};

/// One rank's view of one area. Every wait ends: all ranks arrive, or the timeout passes, or a rank of the group fails. After a
/// failure, this call and every later one throws c10::DistBackendError with the reason of the first failed rank.
class SegmentGroup {
 public:
  /// `offset`: of the area in the segment. `world_ranks[i]` is the rank in the world of rank i of the group; messages use it, and
  /// those about transfers use `name`. `places`: of all groups, to tell what a rank of this group waits for in others.
  SegmentGroup(std::shared_ptr<SharedSegment> segment, size_t offset, int rank, std::vector<int> world_ranks,
               std::string name, std::chrono::milliseconds timeout, std::shared_ptr<const SegmentPlaces> places);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  /// A staging buffer of shm_chunk_bytes, and a small one of shm_small_bytes.
  std::byte* slot(int rank, int half) const;
  std::byte* small_slot(int rank, int half) const;

  /// Announces this rank's operation. The first barrier of a collective compares it with those of the other ranks.
  void announce(const Operation& operation) { ranks_[rank_].operations[operation.sequence % 2].store(operation); }
  /// Waits for all ranks.
  void barrier();
  /// After a barrier: throws when another rank announced something else.
  void check_agreement() const;

  // ---- transfers from the first of two ranks to the second, in chunks, without barriers
  /// First rank: waits for a free chunk, which is to be filled with a part of `message`.
  std::byte* free_chunk(const Operation& message);
  void pass_on();
  /// Second rank: waits for a chunk. Throws if it is not a part of `message`. What was passed on before a failure can still be taken.
  const std::byte* filled_chunk(const Operation& message);
  void give_back();

  /// Fails the group for all its ranks.
  void abort();

 private:
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  void set_failure(const std::string& why) const;
  [[noreturn]] void throw_failure() const;
  using Word = std::atomic<uint32_t>;
  /// Waits on a futex while the word has the value `seen`.
  void wait_for_change(Word& word, uint32_t seen) const;
  /// Checks, after waiting `waited` seconds for a change, for dead peers and for the timeout. Of many peers, each look takes some, and
  /// the ranks that wait look at different ones.
  void look_around(const Word& word, uint32_t seen, double waited, int look) const;
  std::string who_is_gone(int look) const;
  /// The operation, and the group if it is a transfer.
  std::string text_of(const Operation& operation) const;
  std::string who_is_late() const;
  /// A clause on what a rank of the world waits for in other groups; empty if it does not, or not for long.
  std::string waits_of(int rank) const;

  std::shared_ptr<SharedSegment> segment_;
  ShmArea* area_;
  ShmRank* ranks_;  ///< one for each rank of the group
  std::byte *small_slots_, *slots_;
  int rank_;
  std::vector<int> world_ranks_;
  std::string name_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<const SegmentPlaces> places_;
  int spins_;
  int look_every_ms_;
};

/// Gives the groups of a rank their areas of a segment, one after another. All ranks of the host ask for the same groups in the same
/// order.
class SegmentAreas {
 public:
  SegmentAreas(std::shared_ptr<SharedSegment> segment, int rank, std::chrono::milliseconds timeout)
      : segment_(std::move(segment)), rank_(rank), timeout_(timeout) {}
  /// Null on a rank that is not among `ranks`. Throws Error(usage) if the segment is full.
  std::unique_ptr<SegmentGroup> next(const std::vector<int>& ranks, const std::string& name);

 private:
  std::shared_ptr<SharedSegment> segment_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<SegmentPlaces> places_ = std::make_shared<SegmentPlaces>();
  size_t used_ = 0;
};

}  // namespace runner
