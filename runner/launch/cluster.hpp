// Cluster environments: who started us, and which ranks are ours. One file each (torchrun.cpp, slurm.cpp, ...),
// detected or named.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// A process's place in the job, as its environment tells it.
struct Placement {
  std::string cluster;           ///< "local", "torchrun", "slurm", "openmpi", "mpich", "lsf", "kubeflow"
  bool launched = false;         ///< true: someone else started one of us per rank; we supervise just that rank
  int rank = 0, world_size = 1;  ///< not launched: the first rank of this node
  int local_rank = 0, local_size = 1;
  int node_rank = 0, num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  ///< 0 = to be chosen by rank 0's supervisor (all ranks are its own)
  std::string job_id;   ///< the same for every rank of the job, on all nodes; another job has another
};

/// Reads a variable; the real one is getenv. Tests give a map.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

/// One cluster environment.
struct ClusterEnvironment {
  const char* name;
  const char* title;         ///< as its users write it: "Slurm"
  const char* nodes_option;  ///< how to ask it for N nodes; {} stands for N
  const char* ranks_option;  ///< how to ask it for N ranks on each node
  const char* block_option;  ///< how to make it number the ranks of a node in a row, N on each
  bool (*detect)(const Environment&);
  Placement (*read)(
      const Environment&);  ///< throws Error(usage/environment) naming the variable that is missing or odd
};
/// In order of detection: torchrun, slurm, lsf, openmpi, mpich, kubeflow (only by name), local.
const std::vector<ClusterEnvironment>& cluster_environments();
extern const ClusterEnvironment torchrun_environment, slurm_environment, lsf_environment, openmpi_environment,
    mpich_environment, kubeflow_environment, local_environment;

/// `wanted` is devices.cluster ("auto" = the first that detects). Throws Error(usage) for an unknown name.
Placement find_placement(const std::string& wanted, const Environment& environment);

/// What the command line says when the same command is started by hand on each node.
struct NodeOptions {
  std::optional<int> node_rank;            ///< --node-rank
  std::optional<std::string> master_addr;  ///< --master-addr
  std::optional<int> master_port;          ///< --master-port; 29500 when unset
};
/// Completes a placement without a launcher: `devices_per_node` local ranks on each of `num_nodes` nodes. Throws
/// Error(usage) when several nodes lack --node-rank or --master-addr, and when the options contradict a launcher or a
/// single node.
void apply_node_options(Placement& placement, const NodeOptions& options, int devices_per_node, int num_nodes);

/// Checks a launcher's placement against what the recipe asks for (Slurm's tasks per node = devices, WORLD_SIZE = nodes
/// x devices
/// ...), and its ranks against one another. 0 for devices or nodes: the recipe leaves that to the launcher.
/// Throws Error(usage) naming both sides and the fix.
void check_placement(const Placement& placement, int devices_per_node, int num_nodes);

/// The warning for explicit device indices (devices = [1, 3]) under a launcher; empty where there is nothing to warn
/// of.
std::string explicit_indices_warning(const Placement& placement, const std::vector<int>& indices);

}  // namespace runner
