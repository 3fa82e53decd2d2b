// The vocabulary that the ranks of a tensor axis divide: each has the rows [first, first + count) of the tables [tokens, dim].
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3, without padding.
#pragma once
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/tensor_axis.hpp"

namespace runner {

struct VocabularyPart {
  int64_t tokens = 0;                ///< of the vocabulary
  const TensorAxis* axis = nullptr;  ///< null: this rank has all of them

  int64_t first() const { return axis ? share_of(tokens, axis->size(), axis->rank()).first : 0; }
  /// The number of tokens of each rank.
  std::vector<int64_t> sizes() const;
  /// Logits [n, count] of each rank -> [n, tokens] on all ranks (TensorAxis::join_columns()).
  torch::Tensor join(const torch::Tensor& logits) const { return axis ? axis->join_columns(logits, sizes()) : logits; }
};

/// The facts about the logits of hidden states x that losses need in addition to x and W: logits are x W^T + bias.
struct LogitOptions {
  VocabularyPart part = {};
  double softcap = 0;       ///< then they become cap * tanh(logit / cap); 0: no cap
  torch::Tensor bias = {};  ///< [count], may be undefined
};

/// The rows of `table` of the ids [B, T]: [B, T, dim], or if ranks divide the vocabulary, this rank's rows of the stream. `table` has this
/// rank's rows.
torch::Tensor embedded(const torch::Tensor& table, const torch::Tensor& ids, const VocabularyPart& part);

/// The stream as the output of a block: without sequence parallelism [B, T, dim].
torch::Tensor as_output(const torch::Tensor& stream, const torch::Tensor& ids, const TensorAxis* axis);

}  // namespace runner
