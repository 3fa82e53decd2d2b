// Dropout whose masks are a function of a key and a place in the global batch, not of a generator's history:
// recomputation draws the same mask, so do other numbers of ranks and micro-batches, ranks that share a process do not
// disturb each other, and backward draws the mask again instead of keeping it.
#pragma once

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// Where in a block a mask applies; part of its key.
enum class DropoutSite : uint64_t { embedding, attention, attention_out, mlp_out };

/// Which mask: its key, and the sequences of the global batch that it is for.
struct MaskPlace {
  uint64_t key = 0;
  int64_t first_sequence = 0, sequences = 1;
};

/// Boolean, true with probability 1 - p. `sizes` holds place.sequences sequences side by side; an element depends on
/// (key, its sequence's place in the global batch, its own inside the sequence) only. On CPU a threshold on SplitMix64
/// of the index, on other devices their own generator (Philox on CUDA) freshly seeded for each sequence.
torch::Tensor keep_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place);

/// For autograd functions that draw a mask again in backward.
void save_place(torch::autograd::AutogradContext* context, const MaskPlace& place);
MaskPlace saved_place(torch::autograd::AutogradContext* context);

/// The dropout of one block.
class Dropout {
 public:
  Dropout(double p, uint64_t block_index) : p_(p), block_index_(block_index) {}
  bool active(const ForwardContext& context) const { return p_ > 0 && context.training; }
  double p() const { return p_; }
  MaskPlace place(const ForwardContext& context, DropoutSite site) const;
  /// Drops in place and returns x, which must not be a tensor that autograd keeps or a leaf.
  torch::Tensor operator()(torch::Tensor x, const ForwardContext& context, DropoutSite site) const;

 private:
  double p_;
  uint64_t block_index_;
};

}  // namespace runner
