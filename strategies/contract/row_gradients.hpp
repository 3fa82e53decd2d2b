// The gradient of a table from which a micro-batch looks up rows, as an embedding does: rows to add, instead of a tensor of the table's
// shape that is almost everywhere zero.
#pragma once
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// The end of a parameter's graph, if it takes such gradients. A backward finds it as the next node of its own.
class RowGradients {
 public:
  virtual ~RowGradients() = default;
  /// Adds rows[i] to the gradient of row ids[i] of the parameter [n, width], in this order. ids: int64 [k]; rows: [k, width].
  virtual void add_rows(const torch::Tensor& ids, const torch::Tensor& rows) = 0;
};

}  // namespace runner
