// Cluster environments: who started us, and which ranks are ours. One file each (torchrun.cpp, slurm.cpp, ...), detected or named.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// A process's place in the job, as its environment tells it. -1 or empty = the launcher does not say.
struct Placement {
  std::string cluster;          ///< "local", "torchrun", "slurm", "openmpi", "mpich"
  bool launched = false;        ///< true: someone else started one of us per rank; we supervise just that rank
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;
  int node_rank = 0, num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;          ///< 0 = to be chosen
  std::string job_id;
};

/// Reads a variable; the real one is getenv. Tests give a map.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

/// One cluster environment.
struct ClusterEnvironment {
  const char* name;
  bool (*detect)(const Environment&);
  Placement (*read)(const Environment&);  ///< throws Error(usage/environment) naming the variable that is missing or odd
};
/// In order of detection: torchrun, slurm, openmpi, mpich, local.
const std::vector<ClusterEnvironment>& cluster_environments();

/// `wanted` is devices.cluster ("auto" = the first that detects). Throws Error(usage) for an unknown name.
Placement find_placement(const std::string& wanted, const Environment& environment);

/// Checks the placement against what the recipe asks for (Slurm's tasks per node = devices, WORLD_SIZE = nodes x devices ...).
/// Throws Error(usage) naming both sides and the fix.
void check_placement(const Placement& placement, int devices_per_node, int num_nodes);

}  // namespace runner
