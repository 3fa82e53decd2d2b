// What the simulated machine counts.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace runner::simulated {

/// Bytes of the tensors that live, as requested and as blocks have them, now and at the peak.
struct LiveBytes {
  int64_t asked = 0, asked_peak = 0;
  int64_t rounded = 0, rounded_peak = 0;

  void add(int64_t asked_bytes, int64_t block_bytes) {
    asked += asked_bytes;
    rounded += block_bytes;
    asked_peak = std::max(asked_peak, asked);
    rounded_peak = std::max(rounded_peak, rounded);
  }
  void remove(int64_t asked_bytes, int64_t block_bytes) {
    asked -= asked_bytes;
    rounded -= block_bytes;
  }
  void reset_peak() {
    asked_peak = asked;
    rounded_peak = rounded;
  }
};

/// Memory of a device.
struct MemoryStatistics : LiveBytes {
  int64_t allocations = 0;
  int64_t deferred_frees = 0;  ///< of blocks that other streams used
  int64_t waiting_peak = 0;    ///< the most bytes of freed blocks that other streams used then; they are not in `asked` and `rounded`
};

/// Pinned memory. LibTorch's allocator rounds to powers of two and keeps freed blocks.
struct PinnedStatistics : LiveBytes {
  int64_t reserved = 0;  ///< in use, or kept for the next tensor of that size
};

/// Calls of operators by name, and those of them that made the host wait because a result depends on data.
struct OperatorCounts {
  std::map<std::string, int64_t> all, waited;
};

}  // namespace runner::simulated
