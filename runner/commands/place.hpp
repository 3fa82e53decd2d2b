// Determines which ranks of the job this supervisor starts, and on which devices.
#pragma once
#include <vector>

#include "runner/commands/run.hpp"
#include "runner/launch/cluster.hpp"
#include "runner/selection/topology.hpp"

namespace runner {

struct Place {
  Placement placement;
  Topology topology;
  std::vector<int> device_indices;  ///< devices of this supervisor's ranks; empty on CPU

  int rank_count() const {
    if (placement.launched) return 1;
    return placement.simulated ? placement.world_size : placement.local_size;
  }
  bool several_supervisors() const { return rank_count() < placement.world_size; }
};

struct Facts;
/// The devices that the recipe would use on a machine with these facts, without a launcher. Throws Error(environment) if the
/// machine does not have them.
Topology topology_here(const Recipe& recipe, const Facts& facts);

/// Uses the launcher's variables or the command line, and the facts of this machine. Throws Error(usage or environment) if
/// they contradict the recipe or each other.
Place find_place(const Recipe& recipe, const LaunchOptions& options);

/// The place of this node if the run has so many nodes like it.
Place with_nodes(Place place, int nodes);

}  // namespace runner
