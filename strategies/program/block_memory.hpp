// Bytes of tensors while one block of a model runs: in its forward, and in its backward. They are computed from the block's spec,
// which names the moments at which memory may peak.
#pragma once
#include <cstddef>
#include <vector>

#include "strategies/contract/entry.hpp"

namespace runner {

/// Bytes of each input that is kept for a recomputation, for one micro-batch.
std::vector<int64_t> checkpoint_bytes(const Job& job);
/// Bytes of pinned host memory that an allocation of `bytes` takes: the allocator rounds up to a power of two.
int64_t pinned_bytes(int64_t bytes);

/// One thing that happens in a block's backward.
struct BackwardEvent {
  enum class Kind {
    peak,          ///< the block's activations have `bytes` bytes, and memory may peak
    level,         ///< they have `bytes` bytes
    computed,      ///< the gradient of the parameter in `slot` was computed
    stored,        ///< the strategy has added the gradient of `slot` to its buffer
    took_waiting,  ///< what waited for the gradient of a tied parameter (BlockMemory::waiting()) is a part of that gradient
  };
  Kind kind = Kind::level;
  int64_t bytes = 0;
  size_t slot = 0;
};

class BlockMemory {
 public:
  /// `leaf`: dtype of the parameters in the model's slots, and therefore of the gradients that autograd computes. The job must
  /// outlive this object.
  BlockMemory(const Job& job, DType leaf);

  int64_t input(size_t block) const;
  int64_t output(size_t block) const;
  /// What the block keeps for its backward, with its input.
  int64_t saved(size_t block) const;
  /// Bytes of its output that it keeps if it is recomputed.
  int64_t saved_output(size_t block) const;
  /// Bytes of the part of a tied weight's gradient that the head computes. It exists until the embedding's part exists.
  int64_t waiting(size_t block) const;
  /// The bytes in the forward of a block that keeps nothing for a backward: its tensors, and the largest cast of a weight. Of a head that
  /// predicts tokens, the bytes while it computes the loss. `trains`: with dropout.
  int64_t forward_without_graph(size_t block, bool trains) const;
  /// Possible peaks of forward: bytes of the block's activations, without what earlier blocks saved.
  std::vector<int64_t> forward_peaks(size_t block) const;
  /// `takes`: the strategy keeps the tensors of gradients (and counts them), instead of copying them.
  std::vector<BackwardEvent> backward(size_t block, bool takes) const;
  /// The same for the two parts of a split backward. What the first one keeps for the second is counted in both.
  std::vector<BackwardEvent> backward_input(size_t block, bool takes) const;
  std::vector<BackwardEvent> backward_weight(size_t block, bool takes) const;
  /// Bytes that the first part keeps for the second.
  int64_t kept_for_weights(size_t block) const;

  /// Bytes of what the block computes with instead of its converted parameters (conversion.hpp).
  int64_t converted(size_t block) const;
  /// The most bytes in addition while one of them is computed.
  int64_t converting(size_t block) const;

  int64_t elements(size_t slot) const { return elements_[slot]; }

 private:
  class Backward;
  int64_t loss_without_graph(size_t block) const;
  /// The most of the moments without a graph that the block declares; 0 if there are none.
  int64_t declared_without_graph(size_t block, bool trains) const;
  /// Bytes of the cast of the matrix with which the moment's product is computed.
  int64_t product_bytes(size_t block, const MemoryMoment& moment) const;
  /// Whether the block casts the parameter to the compute dtype. Quantized parameters are gathered in it, and converted ones were cast
  /// before they were converted.
  bool casts(const ParameterSpec& parameter) const {
    return leaf_ != job_.precision.compute && !parameter.quantized && !parameter.converted;
  }
  /// The converted parameters that the block uses.
  std::vector<const ParameterSpec*> converted_parameters(size_t block) const;
  /// Rows of the vocabulary projection on the rank with the most.
  int64_t head_columns() const;
  /// Bytes of the cast of the vocabulary projection's weight.
  int64_t head_cast(size_t block) const;
  void add_forward_moment(std::vector<int64_t>& peaks, size_t block, const MemoryMoment& moment) const;
  int64_t moment_bytes(const MemoryMoment& moment) const { return moment_bytes(moment, compute_); }
  int64_t moment_bytes(const MemoryMoment& moment, int64_t element_bytes) const;
  /// Whether the logits' gradient overwrites the logits, and no fp32 values of them exist.
  bool overwrites_logits() const;
  /// Whether attention has the kernel for fp32 in host memory. It takes all sequences of packed rows at once, and windows without
  /// tiles.
  bool has_host_attention() const;
  /// Elements per token of the block's input that are the batch's own, which are counted as the batch.
  double elements_of_batch(size_t block) const;
  /// The moment without elements_of_batch().
  MemoryMoment own_moment(size_t block, MemoryMoment moment) const;
  /// Bytes per token of the moment's fp32 copies of 16-bit values.
  double widened_bytes(const MemoryMoment& moment) const;
  /// Bytes that are freed before the gradient of the moment is delivered: with the fp32 copies.
  int64_t released_bytes(const MemoryMoment& moment) const;
  /// Bytes of an accelerator's copies in other layouts: for the moment's convolution and the gradient of its input, and for the gradient of
  /// its weight.
  int64_t convolution_bytes(const MemoryMoment& moment) const;
  int64_t convolution_weight_bytes(const MemoryMoment& moment) const;
  /// Temporary bytes of the row norms that are computed at the moment.
  int64_t norm_bytes(const MemoryMoment& moment) const;
  /// Bytes of tensors of the compute dtype.
  int64_t bytes_of_tokens(double elements_per_token) const {
    return static_cast<int64_t>(static_cast<double>(tokens_ * compute_) * elements_per_token);
  }
  /// Bytes of the casts of the block's last parameters, which have `elements` elements together, to the compute dtype. Autograd keeps
  /// these casts with the activations.
  int64_t cast_bytes(size_t block, int64_t elements) const;
  int64_t cast_bytes(size_t block) const { return cast_bytes(block, job_.model->blocks[block].parameter_count()); }

  const Job& job_;
  DType leaf_;
  int64_t tokens_, compute_, wide_;  ///< tokens of a micro-batch; bytes per element: compute dtype, statistics
  std::vector<int64_t> elements_;    ///< of each parameter
  std::vector<size_t> first_slot_;   ///< of each block
};

}  // namespace runner
