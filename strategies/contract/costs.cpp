// Costs every strategy shares: what the forward keeps for backward.
#include <algorithm>

#include "strategies/contract/entry.hpp"

namespace runner {

namespace {

int64_t saved_bytes(const BlockSpec& block, int64_t tokens, int64_t element) {
  const auto& saved = block.saved;
  return static_cast<int64_t>(static_cast<double>(tokens) *
                              (saved.compute_elements_per_token * static_cast<double>(element) + saved.float32_per_token * 4 +
                               saved.index_per_token * 8));
}

}  // namespace

int64_t activation_bytes(const Job& job) {
  int64_t tokens = job.micro_batch_size * job.model->seq_len;
  int64_t element = bytes_of(job.precision.compute);
  int64_t kept = 0, largest_recomputed = 0;
  for (size_t i = 0; i < job.model->blocks.size(); ++i) {
    const auto& block = job.model->blocks[i];
    int64_t bytes = saved_bytes(block, tokens, element);
    if (i < job.recompute.size() && job.recompute[i]) {
      // The block's input is the output of the block before, which that block's claim holds already; what comes on top is one
      // block's activations at a time, while its backward runs.
      largest_recomputed = std::max(largest_recomputed, bytes);
      kept += static_cast<int64_t>(block.output_elements_per_token * static_cast<double>(tokens * element));
    } else {
      kept += bytes;
    }
  }
  return kept + largest_recomputed;
}

}  // namespace runner
