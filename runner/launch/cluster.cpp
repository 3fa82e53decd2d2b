// Chooses the cluster environment and checks its placement against the recipe.
#include "runner/launch/cluster.hpp"

#include <cstdlib>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

const ClusterEnvironment* find_environment(const std::string& name) {
  for (const auto& environment : cluster_environments())
    if (name == environment.name) return &environment;
  return nullptr;
}

/// The name of the launcher in messages.
std::string title_of(const Placement& placement) {
  return placement.plugin ? placement.cluster : find_environment(placement.cluster)->title;
}

/// The launcher's option for a number of nodes or ranks, as " (--nodes=2)"; of a plug-in none is known.
std::string with_number(const Placement& placement, const char* ClusterEnvironment::*option, int number) {
  if (placement.plugin) return "";
  const auto* environment = find_environment(placement.cluster);
  const char* text = environment->*option;
  return fmt::format(" ({})", fmt::format(fmt::runtime(*text ? text : environment->ranks_option), number));
}

/// The ranks of this node are the next `devices_per_node` ranks.
void set_ranks(Placement& placement, int devices_per_node, int num_nodes) {
  placement.num_nodes = num_nodes;
  placement.local_size = devices_per_node;
  placement.rank = placement.node_rank * devices_per_node;
  placement.world_size = num_nodes * devices_per_node;
}

void set_port(Placement& placement, const NodeOptions& options) {
  placement.master_port = options.master_port.value_or(default_master_port);
  if (placement.master_port < 1 || placement.master_port > 65535)
    throw usage_error("--master-port {} is not a port: 1 to 65535", placement.master_port);
}

/// Throws if this process is one of several ranks of a launcher that is not detected. Otherwise each would train alone.
void refuse_unknown_launcher(const Environment& environment) {
  const auto ranks = environment("WORLD_SIZE");
  if (!environment("RANK") || !environment("MASTER_ADDR") || !ranks || *ranks == "1") return;
  throw environment_error(
      "RANK, WORLD_SIZE = {} and MASTER_ADDR are set, but their launcher is not known. If it starts one process per "
      "rank and sets LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK, set devices.cluster = \"torchrun\"; if RANK counts "
      "nodes, as in Kubeflow's PyTorchJob, \"kubeflow\"; to ignore the variables, \"local\"",
      *ranks);
}

/// The first environment that is detected. One that yields comes after all others, except `local`, which always detects itself.
const ClusterEnvironment& detected(const Environment& environment) {
  const ClusterEnvironment* yielding = nullptr;
  for (const auto& candidate : cluster_environments()) {
    if (!candidate.detect(environment)) continue;
    const bool local = std::string_view(candidate.name) == local_environment.name;
    if (local && yielding) return *yielding;
    if (!candidate.yields || !candidate.yields(environment)) return candidate;
    if (!yielding) yielding = &candidate;
  }
  RUNNER_CHECK(false, "the local environment detects always");
  return local_environment;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

const std::vector<ClusterEnvironment>& cluster_environments() {
  static const std::vector<ClusterEnvironment> all{torchrun_environment, slurm_environment,    lsf_environment,
                                                   openmpi_environment,  mpich_environment,    horovod_environment,
                                                   bagua_environment,    kubeflow_environment, local_environment};
  return all;
}

Placement find_placement(const std::string& wanted, const Environment& environment) {
  if (wanted != "auto") {
    if (const auto* named = find_environment(wanted)) return named->read(environment);
    std::vector<std::string> names{"auto"};
    for (const auto& known : cluster_environments()) names.emplace_back(known.name);
    auto near = nearest(wanted, names);
    throw usage_error("unknown devices.cluster \"{}\": expected {}{}", wanted, join_or(names),
                      near ? fmt::format("; did you mean \"{}\"?", *near) : "");
  }
  const auto& found = detected(environment);
  if (std::string_view(found.name) == local_environment.name) refuse_unknown_launcher(environment);
  return found.read(environment);
}

void apply_node_options(Placement& placement, const NodeOptions& options, int devices_per_node, int num_nodes) {
  const char* given = options.node_rank     ? "--node-rank"
                      : options.master_addr ? "--master-addr"
                      : options.master_port ? "--master-port"
                                            : nullptr;
  if (placement.plugin) {
    if (given)
      throw usage_error(
          "{} with plugins.cluster_environment: {} already says which node this is; leave it out, or remove the key",
          given, title_of(placement));
    if (!placement.launched) set_ranks(placement, devices_per_node, placement.num_nodes);
    return;
  }
  if (placement.launched) {
    if (given)
      throw usage_error(
          "{} under {}: the launcher already sets the rank of this process; leave it out, or set "
          "devices.cluster = \"local\"",
          given, title_of(placement));
    return;
  }
  if (num_nodes == 1) {
    if (given) throw usage_error("{} is for several nodes, but the recipe has devices.num_nodes = 1", given);
  } else {
    if (!options.node_rank || !options.master_addr)
      throw usage_error(
          "devices.num_nodes = {} without a launcher: start the same command on each node with --node-rank 0 to {} "
          "and --master-addr HOST, the host of node 0 ({} is missing); or start it through srun, torchrun or mpirun",
          num_nodes, num_nodes - 1, options.node_rank ? "--master-addr" : "--node-rank");
    if (*options.node_rank < 0 || *options.node_rank >= num_nodes)
      throw usage_error("--node-rank {} is outside 0 to {} (devices.num_nodes = {})", *options.node_rank, num_nodes - 1,
                        num_nodes);
    placement.node_rank = *options.node_rank;
    placement.master_addr = *options.master_addr;
    set_port(placement, options);
  }
  set_ranks(placement, devices_per_node, num_nodes);
}

void apply_elastic_options(Placement& placement, const NodeOptions& options, int devices_per_node, int num_nodes) {
  if (placement.plugin)
    throw usage_error(
        "devices.min_nodes and max_nodes with plugins.cluster_environment: {} says how many nodes there are; remove "
        "the two keys, or the plug-in",
        title_of(placement));
  if (placement.launched)
    throw usage_error(
        "devices.min_nodes and max_nodes under {}: it starts one `runner` for each rank and decides which nodes there "
        "are; set devices.cluster = \"local\" and start `runner run` once on each node, or remove the two keys",
        find_environment(placement.cluster)->title);
  if (!options.master_addr)
    throw usage_error(
        "an elastic run (devices.min_nodes, max_nodes) needs --master-addr HOST on each node, the host of node 0, and "
        "--node-rank 0 there");
  if (options.node_rank && *options.node_rank < 0)
    throw usage_error("--node-rank {}: in an elastic run it is 0 on the first node, and the others need none",
                      *options.node_rank);
  placement.elastic = true;
  placement.node_rank = options.node_rank == 0 ? 0 : 1;
  placement.master_addr = *options.master_addr;
  set_port(placement, options);
  set_ranks(placement, devices_per_node, num_nodes);
}

void check_placement(const Placement& placement, int devices_per_node, int num_nodes) {
  if (!placement.launched && !placement.plugin) return;
  const std::string title = title_of(placement);
  if (num_nodes > 0 && num_nodes != placement.num_nodes)
    throw usage_error("the recipe uses {}, but {} {} {}: set devices.num_nodes = {}, or start {}{}",
                      counted(num_nodes, "node"), title, placement.launched ? "started" : "says that there are",
                      placement.num_nodes, placement.num_nodes, num_nodes,
                      with_number(placement, &ClusterEnvironment::nodes_option, num_nodes));
  if (!placement.launched) return;
  if (devices_per_node > 0 && devices_per_node != placement.local_size)
    throw usage_error(
        "the recipe uses {} per node, but {} started {} on this node: set devices.devices = {} "
        "(devices.cpu_processes on CPU), or start {} ranks per node{}",
        counted(devices_per_node, "device"), title, counted(placement.local_size, "rank"), placement.local_size,
        devices_per_node, with_number(placement, &ClusterEnvironment::ranks_option, devices_per_node));
  if (placement.local_size < 1 || placement.world_size != placement.num_nodes * placement.local_size)
    throw usage_error("{} started {}, which is not {} x {}: every node needs the same number{}", title,
                      counted(placement.world_size, "rank"), counted(placement.num_nodes, "node"),
                      counted(placement.local_size, "rank"),
                      with_number(placement, &ClusterEnvironment::ranks_option, placement.local_size));
  if (placement.rank != placement.node_rank * placement.local_size + placement.local_rank)
    throw usage_error("{} did not number the ranks node by node: rank {} of {} is number {} of the {} on its node{}",
                      title, placement.rank, placement.world_size, placement.local_rank, placement.local_size,
                      with_number(placement, &ClusterEnvironment::block_option, placement.local_size));
}

std::string explicit_indices_warning(const Placement& placement, const std::vector<int>& indices) {
  if (!placement.launched || indices.empty()) return "";
  return fmt::format(
      "devices = [{}] under {}: the launcher already assigns devices to each rank, and indices refer to the devices in "
      "CUDA_VISIBLE_DEVICES, so they may be invalid or select devices of another job; use a count: devices = {}",
      fmt::join(indices, ", "), title_of(placement), indices.size());
}

}  // namespace runner
