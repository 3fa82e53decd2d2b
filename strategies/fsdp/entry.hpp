// `fsdp`: parameters, gradients and optimizer state are sharded over ranks, and parameters are gathered unit by unit.
//
// Traffic per micro-batch: FULL_SHARD 3 x parameters (two all-gathers, one reduce-scatter), SHARD_GRAD_OP 2 x, NO_SHARD one
// all-reduce, HYBRID_SHARD as FULL_SHARD inside a group plus an all-reduce of the shard between groups.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry fsdp_entry();
/// Lightning's ModelParallelStrategy: the same on the data axis of a mesh with a tensor axis.
Entry model_parallel_entry();

/// The plan of a job. The strategy and the predictions of memory and traffic use the same plan.
ParallelPlan fsdp_plan(const Job& job);

}  // namespace runner
