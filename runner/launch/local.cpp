// No launcher: we start the workers of this node ourselves; several nodes are told apart by apply_node_options.
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

const ClusterEnvironment local_environment{"local", "local", "", "", "", always, local_placement};

}  // namespace runner
