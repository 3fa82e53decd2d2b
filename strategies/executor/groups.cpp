#include "strategies/executor/groups.hpp"

namespace runner {

ShardGroups make_shard_groups(World& world, const ShardPlan& plan) {
  ShardGroups groups;
  groups.replica = world.rank / plan.shards;
  groups.position = world.rank % plan.shards;
  if (plan.shards == world.size) {
    groups.shards = world.group;
    return groups;
  }
  if (plan.shards == 1) {
    groups.replicas = world.group;
    return groups;
  }
  for (int r = 0; r < plan.replicas; ++r) {
    std::vector<int> ranks;
    for (int s = 0; s < plan.shards; ++s) ranks.push_back(r * plan.shards + s);
    auto group = world.make_subgroup(ranks, "shard_" + std::to_string(r));
    if (r == groups.replica) groups.shards = group;
  }
  for (int s = 0; s < plan.shards; ++s) {
    std::vector<int> ranks;
    for (int r = 0; r < plan.replicas; ++r) ranks.push_back(r * plan.shards + s);
    auto group = world.make_subgroup(ranks, "replica_" + std::to_string(s));
    if (s == groups.position) groups.replicas = group;
  }
  return groups;
}

}  // namespace runner
