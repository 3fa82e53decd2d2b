// What the simulated machine counts.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace runner::simulated {

/// Bytes of a device's tensors that live, as they were asked for and as blocks have them, now and at the peak.
struct MemoryStatistics {
  int64_t asked = 0, asked_peak = 0;
  int64_t rounded = 0, rounded_peak = 0;
  int64_t allocations = 0;
  int64_t deferred_frees = 0;  ///< of blocks that other streams used
};

/// Bytes of pinned memory, now and at the peak. LibTorch's allocator gives whole powers of two, and keeps freed ones.
struct PinnedStatistics {
  int64_t asked = 0, asked_peak = 0;
  int64_t rounded = 0, rounded_peak = 0;  ///< to powers of two
  int64_t reserved = 0;                   ///< in use, or kept for the next tensor of that size
};

/// Calls of operators by name, and those of them that made the host wait because a result depends on data.
struct OperatorCounts {
  std::map<std::string, int64_t> all, waited;
};

}  // namespace runner::simulated
