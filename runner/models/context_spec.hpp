// The numbers of attention on ranks that share the tokens of each row (context_attention.hpp): collectives, saved activations and moments
// of high memory use. Torch-free.
#pragma once
#include <vector>

#include "runner/models/attention_form.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// The attention of a block, on this rank of the tensor axis.
struct AttentionSize {
  int64_t heads = 0, key_heads = 0, head_dim = 0;
  int64_t seq_len = 0;  ///< of complete rows
  AttentionForm form = {};
  bool drops = false;  ///< dropout of probabilities

  bool windowed() const { return form.window > 0 && form.window < seq_len; }
};

/// The numbers that a context axis adds to a block. If one rank has complete rows, it adds nothing.
class ContextNumbers {
 public:
  ContextNumbers(const AttentionSize& size, const ContextDivision& context);

  /// Whether ranks exchange keys and values only: gather and ring. With ulysses they exchange queries, too.
  bool keys_travel() const { return context_.divides() && context_.form != ContextForm::ulysses; }
  /// Sets the collectives of a block, and changes what it saves on a rank with complete rows.
  void change(BlockSpec& block) const;

  /// Memory in the forward of attention, for gather and ring. It includes queries, keys, values and the result. `beside`: elements per
  /// token of the other tensors that exist then.
  std::vector<MemoryMoment> forward(double beside) const;
  /// Memory in the backward. It also includes the gradients of those four tensors.
  MemoryMoment backward(double beside) const;

  /// For ulysses: the exchanges before and after attention.
  std::vector<MemoryMoment> forward_exchanges(double beside) const;
  /// For ulysses: elements per token of the queries, keys and values of this rank's heads. They exist during attention in addition to
  /// those of this rank's tokens.
  double of_heads() const { return keys_travel() || !context_.divides() ? 0 : q_ + sent_kv_; }
  /// Heads and key heads of which this rank computes attention at a time.
  int64_t attended_heads() const { return of_heads() > 0 ? size_.heads / context_.ranks : size_.heads; }
  int64_t attended_key_heads() const;
  /// For ulysses: memory while the gradients of queries, keys and values are exchanged. `beside`: as in forward().
  MemoryMoment backward_exchange(double beside) const;

 private:
  /// Elements per token of the largest tile in single operations.
  struct Tile {
    double scores = 0, queries = 0, keys = 0;
    double copied_keys = 0;  ///< of keys, and as many of values: one head needs no copies
  };
  bool masks() const { return size_.drops || size_.form.softcap > 0 || size_.windowed(); }
  bool gathers() const { return context_.form == ContextForm::gather; }
  Tile tile() const;
  void add_traffic(BlockSpec& block) const;
  std::vector<MemoryMoment> forward_of_form(double beside) const;
  std::vector<MemoryMoment> piece() const;
  MemoryMoment piece_backward() const;

  AttentionSize size_;
  ContextDivision context_;
  double ranks_, q_, kv_, heads_;  ///< elements per token: queries; keys and values; log-sum-exps
  double sent_kv_;                 ///< keys and values whose heads are repeated for the ranks that share them
};

}  // namespace runner
