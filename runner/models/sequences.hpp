// The sequences of tokens in the rows of a batch: a row is one sequence, or several that were packed.
#pragma once
#include <optional>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// Tokens [first, first + length) of a row of a batch.
struct Sequence {
  int64_t row = 0, first = 0, length = 0;
};

/// The positions of tokens in their sequences, [B, T] int64. Undefined if each row is one sequence.
struct TokenPositions {
  torch::Tensor on_device = {}, on_host = {};
  bool packed() const { return on_host.defined(); }
};

/// The tensor, unless it is undefined: autograd functions have no undefined arguments.
inline std::optional<torch::Tensor> given(const torch::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// How a block finds the positions of a batch. A batch of this rank's tokens of rows (MicroBatch::padded_tokens) always
/// has them. A batch of complete rows has them if they are packed, also where ranks divide the tokens of other batches.
class PositionsField {
 public:
  explicit PositionsField(const ModelSpec& model);
  TokenPositions of(const MicroBatch& batch) const;

 private:
  std::optional<size_t> field_;  ///< of complete rows; unset: they are single sequences
};

/// Each row of `rows` rows of `length` tokens, or each sequence that `positions` (on the host, may be undefined) name, in the order
/// of the tokens.
std::vector<Sequence> sequences_of(int64_t rows, int64_t length, const torch::Tensor& positions = {});

}  // namespace runner
