// The process groups of a plan: the ranks over which a copy of the model is sharded, and the replicas.
#pragma once
#include "strategies/collective/world.hpp"
#include "strategies/program/plan.hpp"

namespace runner {

/// This rank has shard `position` of copy `replica`. A group of one rank is a null pointer.
struct ShardGroups {
  int replica = 0, position = 0;
  ProcessGroup shards, replicas;  ///< ranks of the same copy; ranks with the same shard of other copies
};

/// Collective.
ShardGroups make_shard_groups(World& world, const ShardPlan& plan);

}  // namespace runner
