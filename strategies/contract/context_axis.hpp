// The ranks that share the tokens of each row, as the blocks of a model use them. Everything but attention works on this rank's tokens.
// Source: context_division.hpp.
#pragma once
#include <functional>
#include <vector>

#include "strategies/collective/channel.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/context_division.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// Channels to the next rank of the axis and from the one before it; the ranks are a ring. Only ContextForm::ring needs them.
struct ContextRing {
  Channel to_next, from_previous;
};

/// Consecutive tokens of rows: the first one's place in the rows, and its index in a tensor that has some tokens of the rows.
struct TokenSpan {
  int64_t position = 0, index = 0, length = 0;
  int64_t end() const { return position + length; }
};

/// A message to the next rank of a ring, and one of the same shape from the rank before it, both on their way.
class RingExchange {
 public:
  RingExchange(const ContextRing& ring, const torch::Tensor& message, int number);
  /// The message from the rank before. Waits until both have arrived.
  torch::Tensor wait();

 private:
  torch::Tensor sent_, received_;
  Channel::Work send_, receive_;
};

/// Tensors have no gradient. All functions but those that only compute spans are collective: every rank of the axis calls them in the same
/// order. `own` has the tokens of this rank, first those of its first chunk, and `all` has those of complete rows in their order.
class ContextAxis {
 public:
  ContextAxis(ProcessGroup group, ContextDivision division, ContextRing ring = {});

  const ContextDivision& division() const { return division_; }
  int rank() const { return division_.rank; }
  int size() const { return division_.ranks; }

  /// The tokens of a rank, of rows of `padded` tokens.
  std::vector<TokenSpan> tokens_of(int rank, int64_t padded) const;
  /// own [B, T / ranks, ...] -> all [B, T, ...].
  torch::Tensor gather(const torch::Tensor& own) const;
  /// all [B, T, ...] of each rank -> own [B, T / ranks, ...] of their sum.
  torch::Tensor scattered_sum(const torch::Tensor& all) const;
  /// Starts to send `message`, contiguous and unchanged until wait(), around the ring. `number`: as in Channel.
  RingExchange exchange(const torch::Tensor& message, int number) const { return {ring_, message, number}; }
  /// Tensors own [B, T / ranks, ranks * h, d], with a number h of heads for each rank -> all [B, T, h, d], this rank's heads of all
  /// tokens. One collective.
  std::vector<torch::Tensor> all_tokens(const std::vector<torch::Tensor>& own) const;
  /// The reverse: all [B, T, h, d] of each rank's heads -> own [B, T / ranks, ranks * h, d].
  std::vector<torch::Tensor> all_heads(const std::vector<torch::Tensor>& all) const;

 private:
  torch::Tensor in_order(const torch::Tensor& parts) const;
  void by_rank(const torch::Tensor& parts, const torch::Tensor& all) const;
  std::vector<torch::Tensor> exchanged(const std::vector<std::vector<int64_t>>& shapes,
                                       const torch::TensorOptions& options,
                                       const std::function<void(size_t, const torch::Tensor&)>& write) const;

  ProcessGroup group_;
  ContextDivision division_;
  ContextRing ring_;
};

/// This rank's tokens of a micro-batch. `fields`: complete rows in host memory, as ModelSpec::batch lists them. Sets host_fields,
/// padded_tokens, row_tokens and all_positions of the result. Padding at the end of a row has no effect on other tokens, and does not count
/// in the loss.
MicroBatch cut_tokens(const std::vector<torch::Tensor>& fields, const ContextDivision& division);

}  // namespace runner
