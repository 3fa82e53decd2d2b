// Size and layout of the shared segment of the ranks of one host. Torch-free, so that the launcher can allocate it.
//
// Each process group has an area, whose size depends on the number of its ranks. An area contains a barrier, and for each
// rank its current operation, two small buffers and two staging buffers. The buffers alternate, so that one barrier per phase is
// enough. In a group of two ranks that is used for transfers, the staging buffers are a ring of chunks. Pages that are never touched
// cost nothing. The small buffers of all ranks lie side by side, because a rank that reads a page of 1,024 others needs 4 MiB of page
// tables.
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runner/base/round_up.hpp"
#include "strategies/collective/operation.hpp"

namespace runner {

constexpr int shm_groups = 64;  ///< groups of all ranks of a host for which there is room; smaller groups take less
constexpr int shm_ranks_max = 1024;  ///< ranks on one host
constexpr size_t shm_small_bytes = 256;
constexpr size_t shm_chunk_bytes = size_t{1} << 20;
constexpr uint32_t shm_ring_chunks = 4;  ///< the staging buffers of two ranks

/// An Operation that one rank writes while others read it. Its words are atomic because a waiting rank reads the
/// operations of other ranks without a barrier. The sequence number is written last: a reader that sees it also sees
/// the rest.
class ShmOperation {
 public:
  void store(const Operation& operation) {
    auto words = std::bit_cast<Words>(operation);
    for (size_t i = words.size(); i-- > 0;) words_[i].store(words[i], std::memory_order_release);
  }
  Operation load() const {
    Words words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_acquire);
    return std::bit_cast<Operation>(words);
  }

 private:
  using Words = std::array<uint64_t, sizeof(Operation) / sizeof(uint64_t)>;
  static_assert(offsetof(Operation, sequence) == 0);
  std::atomic<uint64_t> words_[std::tuple_size_v<Words>];
};

struct ShmRank {
  std::atomic<int32_t> pid;     ///< 0 until the rank has joined
  std::atomic<uint64_t> begun;  ///< its start time, so that a reused pid is not mistaken for it
  /// Indexed by the parity of the sequence number. A rank may announce its next operation while a peer still compares
  /// this one, but never the one after that.
  ShmOperation operations[2];
  std::atomic<uint32_t> waits;  ///< of its threads that have waited in this group for a while
  Operation latest() const {
    Operation even = operations[0].load(), odd = operations[1].load();
    return even.sequence < odd.sequence ? odd : even;
  }
};

/// Whether a rank has failed, and why. After that no rank waits any more.
struct ShmFailure {
  enum State : uint32_t { none, being_written, written };
  std::atomic<uint32_t> state;
  char why[1020];  ///< zero-terminated; constant once written
};

/// Transfers from the first rank of a group of two to the second one.
struct ShmRing {
  alignas(64) std::atomic<uint32_t> filled;   ///< number of chunks so far; futex word of the second rank
  alignas(64) std::atomic<uint32_t> emptied;  ///< futex word of the first rank
  Operation messages[shm_ring_chunks];        ///< the transfer to which each chunk belongs
};

/// The beginning of an area. The ranks, the small buffers and the staging buffers follow.
struct ShmArea {
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> generation;  ///< futex word
  alignas(64) ShmFailure failure;
  ShmRing ring;
};

/// Where the parts begin in the area of a group of `ranks` ranks; the staging buffers at a page.
constexpr size_t shm_ranks_offset = round_up(sizeof(ShmArea), 64);
constexpr size_t shm_small_offset(int ranks) {
  return round_up(shm_ranks_offset + sizeof(ShmRank) * static_cast<size_t>(ranks), 64);
}
constexpr size_t shm_slots_offset(int ranks) {
  return round_up(shm_small_offset(ranks) + 2 * shm_small_bytes * static_cast<size_t>(ranks), 4096);
}

/// Bytes of the area of a group of `ranks` ranks: whole pages.
constexpr size_t shm_area_bytes(int ranks) {
  return shm_slots_offset(ranks) + 2 * shm_chunk_bytes * static_cast<size_t>(ranks);
}
/// Bytes of the segment of a host with `ranks` ranks.
constexpr size_t shm_segment_bytes(int ranks) { return shm_groups * shm_area_bytes(ranks); }

}  // namespace runner
