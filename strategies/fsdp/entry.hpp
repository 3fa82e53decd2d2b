// `fsdp`: parameters, gradients and optimizer state sharded over ranks, gathered unit by unit.
//
// On the wire per micro-batch: FULL_SHARD 3 x parameters (two all-gathers, one reduce-scatter), SHARD_GRAD_OP 2 x,
// NO_SHARD an all-reduce, HYBRID_SHARD as FULL_SHARD inside a group plus an all-reduce of the shard between groups.
#pragma once
#include "strategies/sharded/plan.hpp"

namespace runner {

Entry fsdp_entry();

/// The options as the strategy and its claims both read them.
ShardPlan fsdp_plan(const Job& job);

}  // namespace runner
