// Whom a rank shares a plan's copy with.
#pragma once
#include "strategies/collective/world.hpp"
#include "strategies/sharded/plan.hpp"

namespace runner {

/// Copy `replica`, of which this rank keeps part `position`. A group of one rank is undefined.
struct ShardGroups {
  int replica = 0, position = 0;
  ProcessGroup shards, replicas;  ///< ranks of this copy; ranks that keep the same part
};

/// Collective.
ShardGroups make_shard_groups(World& world, const ShardPlan& plan);

}  // namespace runner
