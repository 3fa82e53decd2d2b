// The bytes that exist at a moment of a predicted step, and the moment with most of them so far. Torch-free.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

struct MemoryPeak {
  MemoryParts now, most;
  /// Compares this moment with the peak.
  void note() {
    if (now.total() > most.total()) most = now;
  }
};

}  // namespace runner
