// How the ranks of the tensor axis divide a model: which rows or columns of each parameter a rank has, and which gradients the ranks
// sum. Torch-free.
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3; Korthikanti et al. 2022 (sequence parallelism), section 4.2.2.
#pragma once
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "strategies/engine/slice.hpp"

namespace runner {

struct ParameterSpec;

/// The dimension along which the ranks divide a parameter. Column-parallel matrices are divided along dimension 0, their outputs;
/// row-parallel ones along dimension 1, their inputs.
struct TensorSplit {
  int dim = 0;
  /// Sizes of the matrices that are fused in this parameter, along `dim`: each is divided for itself. Empty: it is one matrix.
  std::vector<int64_t> parts = {};
  int64_t unit = 1;  ///< indices that stay together: those of a head
  bool operator==(const TensorSplit&) const = default;
};

/// The use of a parameter without a TensorSplit.
enum class WholeUse {
  rows,     ///< for the rows between the products: norms, positions, biases of row-parallel matrices
  columns,  ///< for each rank's own columns: norms of heads. Its gradient is a part of the sum on each rank
};

/// The part of a parameter that one rank of the tensor axis has.
struct TensorPart {
  std::vector<int64_t> whole_shape;
  /// Boxes of the whole parameter. The flattened part is the flattened boxes, one after another.
  std::vector<TensorSlice> boxes;
  /// Number of ranks that have this part, and the index of this rank among them. They are neighbours.
  int replicas = 1, replica = 0;
  /// The gradient of a replica is only a part of the sum: those of all replicas are added.
  bool sums_replicas = false;
};

/// How one rank divides a model with the others of its tensor axis.
struct TensorDivision {
  int ranks = 1, rank = 0;
  /// Between the products each rank has only a part of the rows.
  bool sequence_parallel = true;

  bool divides() const { return ranks > 1; }
  bool divides_rows() const { return divides() && sequence_parallel; }
  /// Elements per token of tensors between the products, on the rank with most.
  double of_rows(double elements) const { return divides_rows() ? elements / ranks : elements; }
  /// The largest share of `units` units that a rank has.
  int64_t most(int64_t units) const { return (units + ranks - 1) / ranks; }
  bool operator==(const TensorDivision&) const = default;
};

/// The share [first, second) of a rank: consecutive units, as equal as possible, the larger shares first. With fewer units than
/// ranks, ranks / units neighbours have the same unit; then `units` must divide `ranks`.
std::pair<int64_t, int64_t> share_of(int64_t units, int ranks, int rank);

/// Replaces the shape of a whole parameter by that of the rank's part, and sets `part`. Does nothing if one rank has everything.
void divide(ParameterSpec& parameter, const TensorDivision& division);

/// Calls `run(whole, local, count)` for each run of consecutive elements of the elements [begin, end) of a flattened part: they
/// begin at element `whole` of the flattened whole parameter and at element `local` of the part.
void for_each_run(const ParameterSpec& parameter, int64_t begin, int64_t end,
                  const std::function<void(int64_t whole, int64_t local, int64_t count)>& run);

}  // namespace runner
