// The needs of an update: its temporary memory, and the collectives and the work of one that reaches over whole parameters
// (contract/matrix_update.hpp). Torch-free.
#pragma once
#include <vector>

#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// One collective over the ranks that share a copy.
struct UpdateCall {
  Collective kind;
  int64_t bytes;  ///< payload
};

/// The collectives of an update.
std::vector<UpdateCall> calls_of_update(const Job& job, const ParallelPlan& plan);
/// Shapes of the matrices that muon orthogonalizes, on the rank with the most work. `optimizer`: Job::optimizer_at().
std::vector<std::vector<int64_t>> matrices_of_update(const Job& job, const ParallelPlan& plan, size_t optimizer = 0);

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
