// Dropout whose masks depend on a key and the position in the global batch, not on the history of a generator.
// Recomputation, other numbers of ranks and other micro-batches draw the same mask. Ranks in one process do not affect
// each other. Backward draws the mask again instead of saving it.
#pragma once

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// Position in a block where a mask applies; part of its key.
enum class DropoutSite : uint64_t { embedding, attention, attention_out, mlp_out, adapter, head_in, head_out };

/// The indices of one dimension that a tensor has, if ranks divide a tensor: those from `first` on, of `whole` indices.
struct MaskPart {
  int dim = 0;
  int64_t first = 0;
  int64_t whole = 0;  ///< 0: the tensor has all of them
};

/// Identifies a mask: its key, and its rows in the global batch.
struct MaskPlace {
  uint64_t key = 0;
  int64_t first_row = 0, rows = 1;
  MaskPart part = {};
};

/// Boolean mask, true with probability 1 - p. `sizes` has at least two dimensions. The first one has place.rows consecutive rows of equal
/// size; if the tensor is a part of it, all indices of the whole have, and the part may end behind them. An element depends only on the
/// key, the position of its row in the global batch, and its coordinates in the row. On CPU, compares SplitMix64 of the coordinates with
/// a threshold. Other devices have generated_mask().
torch::Tensor keep_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place);

/// Seeds the device's generator (Philox on CUDA) for each row and draws complete rows, of which the mask is a part. It also depends on the
/// size of a row.
torch::Tensor generated_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place);

/// For autograd functions that draw the same mask again in backward.
void save_place(torch::autograd::AutogradContext* context, const MaskPlace& place);
MaskPlace saved_place(torch::autograd::AutogradContext* context);

/// The dropout of one block.
class Dropout {
 public:
  Dropout(double p, uint64_t block_index) : p_(p), block_index_(block_index) {}
  bool active(const ForwardContext& context) const { return p_ > 0 && context.training; }
  double p() const { return p_; }
  MaskPlace place(const ForwardContext& context, DropoutSite site) const;
  /// Applies dropout to the stream in place and returns x. x must not be a leaf or a tensor that autograd has saved.
  torch::Tensor operator()(torch::Tensor x, const ForwardContext& context, DropoutSite site) const;

 private:
  double p_;
  uint64_t block_index_;
};

}  // namespace runner
