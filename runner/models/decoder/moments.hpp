// The moments of high memory use in the backward of a decoder's blocks. tests/strategies measures them.
#pragma once
#include "runner/models/context_spec.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/moments_without_graph.hpp"
#include "runner/models/spec_parts.hpp"

namespace runner::decoder {

class Moments {
 public:
  /// `decoder`: not divided.
  Moments(const Recipe::Model& model, const Decoder& decoder, int64_t seq_len, const TensorDivision& division,
          const ContextDivision& context);

  /// Elements per token of a block's input, with all rows of it if parallel branches share them.
  double input() const { return h_.stream + (decoder_.parallel ? h_.gathered() : 0); }
  /// Elements of the input of a branch's first products; 0: it is the block's input.
  double product_input() const { return decoder_.norm_before || h_.gathers ? h_.all : 0; }

  /// Of a block with parameters and saved activations. In order: the norm after the branch, output projection, attention,
  /// norm of queries, projection of queries, the norm before the branch.
  std::vector<MemoryMoment> attention(const BlockSpec& block, int64_t layer) const;
  /// The norm after the branch, the products, the norm before the branch.
  std::vector<MemoryMoment> mlp(const BlockSpec& block) const;
  /// Of one block with both branches, from the blocks of each. The second branch's backward comes first.
  std::vector<MemoryMoment> parallel(const BlockSpec& attention, const BlockSpec& mlp) const;

  /// BlockSpec::moments_without_graph. `packed`: rows may have several sequences.
  std::vector<MemoryMoment> attention_without_graph(int64_t layer, bool packed) const;
  std::vector<MemoryMoment> mlp_without_graph() const;
  /// For a block with both branches. The result of the first branch exists while the second branch is computed.
  std::vector<MemoryMoment> parallel_without_graph(const BlockSpec& attention, const BlockSpec& mlp) const;

  /// What changes in a layer's attention if ranks share the tokens of rows.
  ContextNumbers context(int64_t layer) const;

  /// Whether a layer's attention uses a fused kernel, of which no scores remain.
  bool fused(int64_t layer) const;

 private:
  struct Tile {
    int64_t queries = 0, keys = 0;
  };
  MemoryMoment attention_itself(int64_t layer) const;
  Tile largest_tile(int64_t window) const;
  void add_tiled_attention(MomentsWithoutGraph& moments, double beside, const ContextNumbers& numbers,
                           const AttentionForm& form) const;
  void add_norm_before(MomentsWithoutGraph& moments) const;
  void add_leave(MomentsWithoutGraph& moments, double beside) const;
  /// Adds what happens after a branch's last product. `beside` includes the result of that product.
  void add_end(MomentsWithoutGraph& moments, double beside) const;
  void add_norm_after(std::vector<MemoryMoment>& moments, const BlockSpec& block) const;
  void add_norm_before(std::vector<MemoryMoment>& moments, const BlockSpec& block) const;
  /// Elements of a branch's gradient that exists in addition to the residual's, and of the gradient of the branch's last product.
  double masked() const;
  double last_gradient() const { return h_.gathers ? h_.all : masked(); }
  /// Elements of the rows that a norm before a branch has.
  double normed_rows() const { return decoder_.parallel ? h_.all : h_.stream; }
  bool layer_norm() const { return decoder_.norm == Decoder::Norm::layer; }
  bool qk_norm() const { return decoder_.qk_norm != Decoder::QkNorm::none; }

  const Recipe::Model& model_;
  const Decoder decoder_;  ///< the part of the rank with the most
  const TensorDivision division_;
  const ContextDivision context_;
  int64_t seq_len_;
  HiddenElements h_;
  double q_, kv_, mlp_;  ///< elements per token: queries, keys, feed-forward
};

/// Adds the memory that a soft cap of logits needs to the moments of a head. `vocab_size`: of the rank's part.
void add_softcap(BlockSpec& head, int64_t vocab_size);

}  // namespace runner::decoder
