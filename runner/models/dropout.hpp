// Dropout whose masks are a function of a key, not of a generator's history: recomputation draws the same mask, ranks
// that share a process do not disturb each other, and backward draws the mask again instead of keeping it.
#pragma once
#include <torch/torch.h>

#include "strategies/contract/module.hpp"

namespace runner {

/// Where in a block a mask applies; part of its key.
enum class DropoutSite : uint64_t { embedding, attention, attention_out, mlp_out };

/// Boolean, true with probability 1 - p; element i depends on (key, i) only. On CPU a threshold on SplitMix64 of the
/// index, on other devices their own generator (Philox on CUDA) freshly seeded with the key.
torch::Tensor keep_mask(at::IntArrayRef sizes, torch::Device device, double p, uint64_t key);

/// The dropout of one block.
class Dropout {
 public:
  Dropout(double p, uint64_t block_index) : p_(p), block_index_(block_index) {}
  bool active(const ForwardContext& context) const { return p_ > 0 && context.training; }
  double p() const { return p_; }
  uint64_t key(const ForwardContext& context, DropoutSite site) const;
  /// Drops in place and returns x, which must not be a tensor that autograd keeps or a leaf.
  torch::Tensor operator()(torch::Tensor x, const ForwardContext& context, DropoutSite site) const;

 private:
  double p_;
  uint64_t block_index_;
};

}  // namespace runner
