// No launcher: the supervisor starts all workers of its node. For several nodes, apply_node_options() sets the ranks.
#include "runner/launch/cluster.hpp"

namespace runner {

namespace {

bool always(const Environment&) { return true; }

Placement local_placement(const Environment&) {
  Placement placement;
  placement.cluster = "local";
  return placement;
}

}  // namespace

const ClusterEnvironment local_environment{
    .name = "local",
    .title = "local",
    .detect = always,
    .read = local_placement,
};

}  // namespace runner
