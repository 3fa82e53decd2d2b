// No launcher: we start the workers of this node ourselves; several nodes are told apart by apply_node_options.
#include "runner/launch/cluster.hpp"

namespace runner {

namespace {

bool detect(const Environment&) { return true; }

Placement read(const Environment&) {
  Placement placement;
  placement.cluster = "local";
  return placement;
}

}  // namespace

const ClusterEnvironment local_environment{"local", "local", "", "", "", detect, read};

}  // namespace runner
