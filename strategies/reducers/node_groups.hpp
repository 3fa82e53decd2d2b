// The ranks of a hierarchical exchange: those of each node reduce first, and then one vector of each node is exchanged. This header is
// torch-free.
#pragma once
#include <algorithm>

#include "strategies/contract/entry.hpp"

namespace runner {

struct NodeGroups {
  int64_t node = 1;   ///< ranks of a node
  int64_t nodes = 1;  ///< nodes
};
/// Without a hierarchy each rank is a node of its own.
inline NodeGroups node_groups(const Job& job, bool hierarchical) {
  const int64_t ranks = job.world_size(), node = hierarchical ? std::min<int64_t>(job.local_size, ranks) : 1;
  return {.node = node, .nodes = ranks / node};
}

}  // namespace runner
