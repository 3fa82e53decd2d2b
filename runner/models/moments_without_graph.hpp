// Lists moments of high memory use in a forward that keeps nothing for a backward (BlockSpec::moments_without_graph). `beside` is the
// number of elements per token of the tensors that exist in addition: with the block's input, and with variables and temporaries of
// expressions that have not ended.
#pragma once
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

class MomentsWithoutGraph {
 public:
  MomentsWithoutGraph(const Recipe::Model& model, int64_t seq_len);

  void add(double beside);
  /// x W^T with a matrix [out, in]. Its result is not in `beside`.
  void add_product(double beside, int64_t out, int64_t in);
  /// RMSNorm of `size` elements per token, which are in `beside` and form `rows` rows.
  void add_rms_norm(double beside, double size, double rows = 1);
  /// Dropout of `size` elements in place, with a mask. CPUs copy the mask to the compute dtype.
  void add_dropout(double beside, double size);
  /// Attention with dropout, of `size` elements of queries, which are in `beside`. `repeats`: keys and values are repeated for query
  /// heads that share them.
  void add_dropout_attention(double beside, double size, bool repeats);
  /// Attention without dropout in a fused kernel.
  struct Fused {
    double size = 0;       ///< elements of its result
    int64_t head_dim = 0;  ///< as MemoryMoment::attended_head_dim
    bool joined = false;   ///< it may run once for each sequence of packed rows, with results that are joined
  };
  void add_fused_attention(double beside, const Fused& attention);

  /// Something that training with dropout does in another way.
  void add_without_dropout(MemoryMoment moment);

  std::vector<MemoryMoment> list;

 private:
  void add_with_dropout(double elements, double mask_bytes = 0);

  bool drops_;
  double heads_, scores_;
};

}  // namespace runner
