// Cluster environments: which launcher started this process, and which ranks it supervises. An environment
// (launchers.cpp, slurm.cpp) is either detected or selected by name.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// The ranks of this process in the job, read from its environment variables.
struct Placement {
  std::string cluster;           ///< ClusterEnvironment::name; with `plugin` its name for messages, "the plug-in rack"
  bool plugin = false;           ///< read by plugins.cluster_environment (cluster_plugin.hpp)
  bool simulated = false;        ///< this supervisor starts the ranks of all nodes
  bool elastic = false;          ///< nodes may leave and join; the leader numbers the others
  bool launched = false;         ///< a launcher started one `runner` process for each rank; each supervises one worker
  int rank = 0, world_size = 1;  ///< rank: if not launched, the first rank of this node
  int local_rank = 0, local_size = 1;
  int node_rank = 0, num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;      ///< 0: rank 0's supervisor chooses a port (it supervises all ranks)
  std::string job_id = {};  ///< the same for every rank of the job on all nodes, different for other jobs
};

/// Reads an environment variable. process_environment() uses getenv; tests use a map.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

/// One cluster environment.
struct ClusterEnvironment {
  const char* name;
  const char* title;              ///< its name in messages, e.g. "Slurm"
  const char* nodes_option = "";  ///< its option for N nodes; {} is replaced by N
  const char* ranks_option = "";  ///< its option for N ranks on each node
  const char* block_option = "";  ///< its option for N consecutive ranks on each node; empty: ranks_option
  bool (*detect)(const Environment&);
  /// Whether another launcher that is also detected started this process. Null: none did.
  bool (*yields)(const Environment&) = nullptr;
  Placement (*read)(
      const Environment&);  ///< throws Error(usage/environment) with the variable that is missing or invalid
};
/// All environments in order of detection: torchrun, slurm, lsf, openmpi, mpich, horovod, bagua, kubeflow (selected by name only), local.
const std::vector<ClusterEnvironment>& cluster_environments();
extern const ClusterEnvironment torchrun_environment, slurm_environment, lsf_environment, openmpi_environment,
    mpich_environment, horovod_environment, bagua_environment, kubeflow_environment, local_environment;

/// `wanted` is devices.cluster; "auto" selects the first environment that is detected and does not yield to another.
/// Throws Error(usage) for an unknown name. find_placement() in cluster_plugin.hpp also asks the plug-in of a recipe.
Placement find_placement(const std::string& wanted, const Environment& environment);

inline constexpr int default_master_port = 29500;  ///< the default of torch.distributed

/// Command-line options for several nodes without a launcher. The user starts the same command on each node.
struct NodeOptions {
  std::optional<int> node_rank;            ///< --node-rank
  std::optional<std::string> master_addr;  ///< --master-addr
  std::optional<int> master_port;          ///< --master-port; default 29500
};
/// Completes a placement without a launcher: `devices_per_node` local ranks on each of `num_nodes` nodes. Throws Error(usage)
/// if several nodes lack --node-rank or --master-addr, or if options are given under a launcher, with a plug-in or for a single node. A
/// plug-in has set the nodes.
void apply_node_options(Placement& placement, const NodeOptions& options, int devices_per_node, int num_nodes);

/// Completes the placement of an elastic run that starts with `num_nodes` nodes, with `devices_per_node` local ranks on each.
/// `--node-rank 0` makes this node the leader; the leader numbers the others, which have the place of node 1 until then. Throws
/// Error(usage) under a launcher, with a plug-in, or without --master-addr.
void apply_elastic_options(Placement& placement, const NodeOptions& options, int devices_per_node, int num_nodes);

/// Checks that the placement of a launcher or a plug-in agrees with the recipe (tasks per node = devices, WORLD_SIZE =
/// nodes x devices, ...) and that its ranks are consistent. 0 for devices or nodes means that the launcher decides.
/// Throws Error(usage) with both values and the fix.
void check_placement(const Placement& placement, int devices_per_node, int num_nodes);

/// The warning for explicit device indices (devices = [1, 3]) under a launcher; empty if no warning is needed.
std::string explicit_indices_warning(const Placement& placement, const std::vector<int>& indices);

}  // namespace runner
