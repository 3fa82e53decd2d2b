// Temporary memory of updates that are not made by a fused kernel. Torch-free.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// Wide copies in an update by LibTorch's operators (contract/tensor_update.hpp). `largest_part`: elements of the largest part of a
/// parameter that a rank updates.
int64_t operator_update_bytes(const Job& job, const ParallelPlan& plan, int64_t largest_part, bool on_host);
/// Sums, copies of gradients and whole matrices in an update that reaches over whole parameters (contract/matrix_update.hpp).
int64_t matrix_update_bytes(const Job& job, const ParallelPlan& plan, int64_t largest_part);

}  // namespace runner
