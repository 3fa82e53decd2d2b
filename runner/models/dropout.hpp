// Dropout whose masks depend on a key and the position in the global batch, not on the history of a generator.
// Recomputation, other numbers of ranks and other micro-batches draw the same mask. Ranks in one process do not affect
// each other. Backward draws the mask again instead of saving it.
#pragma once
#include <array>
#include <optional>
#include <vector>

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

/// The tokens of each row that a tensor has, if ranks divide the tokens (ContextDivision).
struct MaskTokens {
  std::array<int64_t, 2> chunks = {};  ///< the first token of each of the two chunks
  int64_t chunk = 0;                   ///< tokens of a chunk
  int64_t whole = 0;                   ///< tokens of a row without padding

  int64_t count() const { return 2 * chunk; }
  /// The place in the row of the tensor's token `index`.
  int64_t position(int64_t index) const { return index < chunk ? chunks[0] + index : chunks[1] + index - chunk; }
};

/// Identifies a mask: its key, and its rows in the global batch.
struct MaskPlace {
  uint64_t key = 0;
  int64_t first_row = 0, rows = 1;
  std::vector<MaskPart> parts = {};  ///< of different dimensions
  /// If set, the tensor [B * T, dim] or [B, T, dim] has these tokens of the rows. A part of the first dimension is then a part of them.
  std::optional<MaskTokens> tokens = {};
  uint64_t block = 0, site = 0;  ///< what the key depends on besides the step

  /// The part of a dimension; null: the tensor has all of it.
  const MaskPart* part(size_t dim) const;
};

/// Boolean mask, true with probability 1 - p. `sizes` has at least two dimensions. The first one has place.rows consecutive rows of equal
/// size; if the tensor has a part of that dimension, these are the rows of the whole. A part may end behind the whole: that is padding. An
/// element depends only on the key, the position of its row in the global batch, and its coordinates in the row. On CPU, compares
/// SplitMix64 of the coordinates with a threshold. For a tensor without values it is the operator runner::keep_mask(), which a compiler
/// replaces: key and rows of a step are not known then. CUDA devices have generated_mask(), others the CPU's mask.
torch::Tensor keep_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place);

/// Seeds the device's generator (Philox on CUDA) for each row and draws complete rows, of which the mask is a part. It also depends on the
/// size of a row.
torch::Tensor generated_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place);

/// For autograd functions that draw the same mask again in backward.
void save_place(torch::autograd::AutogradContext* context, const MaskPlace& place);
MaskPlace saved_place(torch::autograd::AutogradContext* context);

/// Dropout with a certain mask: the probability, 0 for none, and the place of the mask.
struct PlacedDropout {
  double p = 0;
  MaskPlace place = {};

  bool drops() const { return p > 0; }
  /// x multiplied by the mask and 1 / (1 - p); x itself if nothing is dropped.
  torch::Tensor operator()(const torch::Tensor& x) const;
  /// Multiplies x by the mask and 1 / (1 - p) in place.
  torch::Tensor apply_to(torch::Tensor x) const;
};

/// The dropout of one block.
class Dropout {
 public:
  Dropout(double p, uint64_t block_index) : p_(p), block_index_(block_index) {}
  bool active(const ForwardContext& context) const { return p_ > 0 && context.training; }
  double p() const { return p_; }
  /// The place of the mask of tensors whose first dimension has the tokens of all rows.
  MaskPlace place(const ForwardContext& context, DropoutSite site) const;
  /// Applies dropout to the stream in place and returns x. x must not be a leaf or a tensor that autograd has saved.
  torch::Tensor operator()(torch::Tensor x, const ForwardContext& context, DropoutSite site) const;

 private:
  double p_;
  uint64_t block_index_;
};

}  // namespace runner
