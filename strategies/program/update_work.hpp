// The collectives and the work of an update that reaches over whole parameters (contract/matrix_update.hpp). Torch-free.
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

}  // namespace runner
