// Lists moments of high memory use in a forward that keeps nothing for a backward (BlockSpec::moments_without_graph). In all functions,
// `beside` counts the elements per token of the other tensors that exist at this moment. The block's input is one of them.
#pragma once
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

class MomentsWithoutGraph {
 public:
  MomentsWithoutGraph(const Recipe::Model& model, int64_t seq_len, const TensorDivision& division = {});

  void add(double beside);
  void add(const std::vector<MemoryMoment>& moments) { list.insert(list.end(), moments.begin(), moments.end()); }
  /// The product x W^T with a matrix W of shape [out, in]. `beside` does not include the result.
  void add_product(double beside, int64_t out, int64_t in);
  /// The sum over the ranks of a product of `size` elements (TensorAxis::leave()). `beside` does not include the product or the sum.
  void add_leave(double beside, double size);
  /// RMSNorm of `size` elements per token in `rows` rows. `beside` includes these elements.
  void add_rms_norm(double beside, double size, double rows = 1);
  /// Dropout of `size` elements in place, with a mask. CPUs copy the mask to the compute dtype.
  void add_dropout(double beside, double size);
  /// Attention with dropout. The queries have `size` elements per token, and `beside` includes them. `repeats`: keys and values are
  /// repeated, because several query heads share them.
  void add_dropout_attention(double beside, double size, bool repeats);
  /// Attention without dropout in a fused kernel, whose result has `size` elements. `joined`: it may run once for each sequence of packed
  /// rows, with results that are joined.
  void add_fused_attention(double beside, double size, bool joined = false);

  /// A moment that does not occur in a training with dropout.
  void add_without_dropout(MemoryMoment moment);

  std::vector<MemoryMoment> list;

 private:
  void add_with_dropout(double elements, double mask_bytes = 0);

  bool drops_;
  TensorDivision division_;
  double heads_, scores_;
};

}  // namespace runner
