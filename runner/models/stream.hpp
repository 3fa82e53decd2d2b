// The hidden states between the products of a block, the stream: rows [B * T, dim] of all tokens of the micro-batch, or, with sequence
// parallelism, this rank's part of them (TensorAxis). The input of a block is [B, T, dim], and a part is [rows, dim].
#pragma once
#include "strategies/contract/module.hpp"
#include "strategies/contract/tensor_axis.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

/// The knowledge of a block about the rows of its input.
class Stream {
 public:
  Stream(const torch::Tensor& input, const ForwardContext& context)
      : axis_(context.tensor_axis), tokens_(input.dim() == 3 ? input : context.batch->fields[token_field::inputs]) {}

  int64_t batch() const { return tokens_.size(0); }
  int64_t seq_len() const { return tokens_.size(1); }
  /// All rows: the input of matrices of which each rank has some outputs. Of one rank: `rows`. A temporary is freed.
  torch::Tensor enter(torch::Tensor rows) const {
    const auto own = std::move(rows);
    return axis_ ? axis_->enter(own, batch() * seq_len()) : own;
  }

 private:
  const TensorAxis* axis_;
  torch::Tensor tokens_;  ///< [B, T] or [B, T, dim]
};

}  // namespace runner
