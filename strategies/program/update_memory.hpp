// Temporary memory of updates. Torch-free.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// Elements on the rank with the most.
struct UpdatedElements {
  int64_t largest_part = 0;     ///< of the largest part of a parameter
  int64_t all = 0;              ///< of all trained parameters
  std::vector<int64_t> shards;  ///< of each unit's shard
};

/// Temporary bytes of an update: tiles of the file's arrays, casts of gradients that have another dtype than the masters, and what
/// updates without a fused kernel need.
int64_t update_bytes(const Job& job, const ParallelPlan& plan, const UpdatedElements& elements);

}  // namespace runner
