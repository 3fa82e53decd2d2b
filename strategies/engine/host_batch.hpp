// One micro-batch of one rank in host memory.
#pragma once
#include <cstdint>
#include <vector>

namespace runner {

struct HostBatch {
  int64_t sequences = 0;         ///< rows, at most micro_batch_size; fewer, or 0, at the end of an epoch
  std::vector<int64_t> inputs;   ///< [sequences, T] token ids
  std::vector<int64_t> targets;  ///< [sequences, T] next tokens; those of -100 are ignored
};

}  // namespace runner
