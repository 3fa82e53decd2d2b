// PowerSGD: its options, and how it divides a bucket into matrices. This header is torch-free.
#pragma once
#include "runner/base/option_table.hpp"
#include "strategies/contract/bucket_item.hpp"
#include "strategies/reducers/built_in.hpp"

namespace runner {

BuiltInReducer power_sgd();
BuiltInReducer batched_power_sgd();

/// PyTorch's PowerSGDState.
struct PowerSgdOptions {
  int64_t matrix_approximation_rank = 1;
  int64_t start_powerSGD_iter = 1000;
  double min_compression_rate = 2;
  bool use_error_feedback = true, warm_start = true;
  double orthogonalization_epsilon = 0;
  int64_t random_seed = 0;
};
const OptionTable<PowerSgdOptions>& power_sgd_options();

/// How PowerSGD divides a bucket: a matrix n x m is sent as n x rank and m x rank numbers if that is short enough, all other
/// parameters as they are.
struct PowerSgdDivision {
  struct Matrix {
    int64_t offset, rows, columns, rank;
    int64_t elements() const { return rows * columns; }
  };
  std::vector<Matrix> matrices = {};
  /// Ranges of the bucket that are sent as they are.
  struct Range {
    int64_t offset, count;
  };
  std::vector<Range> plain = {};
  int64_t plain_elements = 0, p_elements = 0, q_elements = 0, matrix_elements = 0;
};
/// The division of the hook powerSGD_hook.
PowerSgdDivision divide_by_parameter(const std::vector<BucketItem>& items, const PowerSgdOptions& options);
/// The division of batched_powerSGD_hook: the bucket as one square, padded with zeros.
PowerSgdDivision divide_as_square(int64_t elements, const PowerSgdOptions& options);

}  // namespace runner
