// The shared segment of the ranks of one host: how big it is and what lies where. Torch-free, so that the launcher can size it.
//
// One area a process group. An area holds a barrier, a word a rank about what the rank is doing, and two staging buffers a rank that
// alternate, so that one barrier a phase is enough. Pages that are never touched cost nothing.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace runner {

constexpr int shm_areas = 64;        ///< groups on one host: the world and its subgroups
constexpr int shm_ranks_max = 64;    ///< ranks on one host
constexpr size_t shm_chunk_bytes = size_t{1} << 20;

/// What a rank is in the middle of; peers compare it to find out at once that they diverged.
struct ShmOperation {
  uint64_t sequence;
  uint64_t bytes;
  uint32_t kind;
  uint32_t dtype;
};

struct ShmRank {
  std::atomic<int32_t> pid;        ///< 0 until the rank has joined
  std::atomic<uint64_t> begun;     ///< its start time, so that a reused pid is not mistaken for it
  /// By parity of the sequence number: a rank may announce its next operation while a peer still compares this one, never the one
  /// after that.
  ShmOperation operations[2];
  const ShmOperation& latest() const { return operations[operations[0].sequence < operations[1].sequence]; }
};

struct ShmArea {
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> generation;  ///< futex word
  std::atomic<uint32_t> aborted;                 ///< a rank has given up: nobody waits any more
  alignas(64) ShmRank ranks[shm_ranks_max];
};

/// Bytes of a segment for `ranks` ranks.
constexpr size_t shm_segment_bytes(int ranks) {
  size_t area = (sizeof(ShmArea) + 4095) / 4096 * 4096 + 2 * shm_chunk_bytes * static_cast<size_t>(ranks);
  return area * shm_areas;
}

}  // namespace runner
