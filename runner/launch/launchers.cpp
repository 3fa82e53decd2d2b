// Launchers other than Slurm; and no launcher at all. All but LSF describe each rank in variables of its own, without a file of hosts.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "runner/base/error.hpp"
#include "runner/base/host_name.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

/// The names of a launcher's variables.
struct RankNames {
  const char *rank, *world_size, *local_rank, *local_size;
};

/// `node_rank`: the names of the node's number. Empty: it follows from block placement, which check_placement() verifies.
Placement placed(const char* cluster, const Variables& variables, const RankNames& names,
                 std::initializer_list<const char*> node_rank = {}) {
  Placement placement{.cluster = cluster,
                      .launched = true,
                      .rank = variables.number({names.rank}),
                      .world_size = variables.number({names.world_size}),
                      .local_rank = variables.number({names.local_rank}),
                      .local_size = variables.number({names.local_size})};
  if (placement.local_size > 0) {
    placement.node_rank = placement.rank / placement.local_size;
    placement.num_nodes = placement.world_size / placement.local_size;
  }
  if (node_rank.size() > 0) placement.node_rank = variables.number(node_rank);
  return placement;
}

/// "CLUSTER/ADDRESS:PORT".
std::string address_key(const std::string& cluster, const Variables& variables, const char* address, const char* port) {
  return cluster + "/" + variables.text({address}).value_or("") + ":" + variables.text({port}).value_or("");
}

Placement torchrun_placement(const Environment& environment) {
  Variables variables(environment, "torchrun");
  auto placement = placed("torchrun", variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                          {"GROUP_RANK", "NODE_RANK"});
  placement.num_nodes = variables.optional_number({"GROUP_WORLD_SIZE"}).value_or(placement.num_nodes);
  placement.job_id = variables.text({"TORCHELASTIC_RUN_ID"}).value_or("torchrun");
  std::string port = variables.text({"MASTER_PORT"}).value_or("");
  variables.set_meeting_point(placement, std::nullopt, "torchrun/" + placement.job_id);
  // torchrun's agent already listens on MASTER_PORT, for the store of Python ranks. runner uses a different port.
  if (variables.text({"TORCHELASTIC_USE_AGENT_STORE"}) == "True")
    placement.master_port = derived_port("torchrun/" + placement.job_id + "/" + port);
  return placement;
}

Placement openmpi_placement(const Environment& environment) {
  Variables variables(environment, "Open MPI's mpirun");
  // OMPI_COMM_WORLD_NODE_RANK is the rank within the node.
  auto placement = placed(
      "openmpi", variables,
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  placement.job_id = variables.text({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}).value_or("");
  variables.set_meeting_point(placement, std::nullopt, "openmpi/" + placement.job_id);
  return placement;
}

/// The pid of hydra_pmi_proxy, the process that started all ranks of this node. It is the only thing that they have in
/// common: the nearest ancestor without PMI_RANK in its environment. Wrapper shells in between have PMI_RANK.
int proxy_process() {
  int pid = ::getppid();
  while (pid > 1) {
    const std::string variables = '\0' + read_proc("/proc/" + std::to_string(pid) + "/environ");
    if (variables.find(std::string("\0PMI_RANK=", 10)) == std::string::npos) break;
    const auto stat = read_process_stat(pid);
    if (!stat) break;
    pid = stat->parent;
  }
  return pid;
}

Placement mpich_placement(const Environment& environment) {
  Variables variables(environment, "MPICH's mpirun");
  auto placement = placed("mpich", variables, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  if (placement.num_nodes > 1 && !(variables.text({"MASTER_ADDR"}) && variables.text({"MASTER_PORT"})))
    throw usage_error(
        "MPICH's mpirun started {} ranks on {} nodes but gives neither a rendezvous address nor a job id: set "
        "MASTER_ADDR (the host "
        "of rank 0) and MASTER_PORT for every rank",
        placement.world_size, placement.num_nodes);
  if (placement.num_nodes == 1) placement.job_id = std::to_string(proxy_process());
  variables.set_meeting_point(placement, std::nullopt, "mpich/" + placement.job_id);
  // Each node has a different proxy. The rendezvous address identifies the job on all nodes.
  if (placement.num_nodes > 1) placement.job_id = fmt::format("{}:{}", placement.master_addr, placement.master_port);
  return placement;
}

Placement horovod_placement(const Environment& environment) {
  Variables variables(environment, "horovodrun");
  auto placement =
      placed("horovod", variables, {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"},
             {"HOROVOD_CROSS_RANK"});
  placement.num_nodes = variables.number({"HOROVOD_CROSS_SIZE"});
  placement.job_id = address_key("horovod", variables, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT");
  variables.set_meeting_point(placement, variables.text({"HOROVOD_GLOO_RENDEZVOUS_ADDR"}), placement.job_id);
  return placement;
}

Placement bagua_placement(const Environment& environment) {
  Variables variables(environment, "Bagua's launcher");
  auto placement = placed("bagua", variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, {"NODE_RANK"});
  placement.job_id = address_key("bagua", variables, "MASTER_ADDR", "MASTER_PORT");
  variables.set_meeting_point(placement, std::nullopt, placement.job_id);
  return placement;
}

Placement kubeflow_placement(const Environment& environment) {
  Variables variables(environment, "Kubeflow");
  Placement placement{.cluster = "kubeflow", .launched = true};
  placement.rank = placement.node_rank = variables.number({"RANK"});
  placement.world_size = placement.num_nodes = variables.number({"WORLD_SIZE"});
  placement.job_id = address_key("kubeflow", variables, "MASTER_ADDR", "MASTER_PORT");
  variables.set_meeting_point(placement, std::nullopt, placement.job_id);
  return placement;
}

Placement local_placement(const Environment&) { return {.cluster = "local"}; }

// LSF: jsrun starts one process for each task and sets the ranks (JSM_NAMESPACE_*). The job's rank file contains the hosts.

constexpr const char* lsf_title = "LSF's jsrun";

bool detect_lsf(const Environment& environment) {
  return environment("LSB_JOBID") && environment("LSB_DJOB_RANKFILE") && environment("JSM_NAMESPACE_SIZE");
}

/// The compute hosts of the rank file, in its order and without duplicates. The file has one line for each task; its first
/// line is the launch node, which is skipped.
std::vector<std::string> compute_hosts(const Variables& variables) {
  auto path = variables.text({"LSB_DJOB_RANKFILE"});
  if (!path)
    throw environment_error("LSB_DJOB_RANKFILE is not set; {} sets it: is this process started by it?", lsf_title);
  std::ifstream file(*path);
  std::vector<std::string> hosts;
  bool launch_node = true;
  for (std::string line; std::getline(file, line);) {
    std::string host(trim(line));
    if (host.empty() || std::exchange(launch_node, false)) continue;
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  if (hosts.empty()) throw environment_error("LSB_DJOB_RANKFILE={} names no compute host", *path);
  return hosts;
}

/// The host name without its domain.
std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

/// The place of this host in the rank file. jsrun passes on the HOSTNAME of the launch node if that node exports it, so the variable counts
/// only if the real name is not in the file.
int own_index(const std::vector<std::string>& hosts, const Variables& variables) {
  const std::string real = host_name(), named = variables.text({"HOSTNAME"}).value_or(real);
  for (const auto& own : {real, named}) {
    const auto found = std::ranges::find(hosts, short_name(own), short_name);
    if (found != hosts.end()) return static_cast<int>(found - hosts.begin());
  }
  throw environment_error("this host, {}{}, is not in LSB_DJOB_RANKFILE, which names {}", real,
                          named == real ? "" : fmt::format(" (HOSTNAME={})", named), join(hosts, ", "));
}

Placement read_lsf(const Environment& environment) {
  Variables variables(environment, lsf_title);
  Placement placement{.cluster = "lsf", .launched = true};
  placement.rank = variables.number({"JSM_NAMESPACE_RANK"});
  placement.world_size = variables.number({"JSM_NAMESPACE_SIZE"});
  placement.local_rank = variables.number({"JSM_NAMESPACE_LOCAL_RANK"});
  auto hosts = compute_hosts(variables);
  placement.num_nodes = static_cast<int>(hosts.size());
  placement.node_rank = own_index(hosts, variables);
  placement.local_size =
      variables.optional_number({"JSM_NAMESPACE_LOCAL_SIZE"}).value_or(placement.world_size / placement.num_nodes);
  placement.job_id = variables.text({"LSB_JOBID"}).value_or("lsf");
  variables.set_meeting_point(placement, hosts.front(), "lsf/" + placement.job_id);
  return placement;
}

}  // namespace

/// torchrun (torch.distributed.run). A launcher that sets the same variables without TORCHELASTIC_RUN_ID must be selected by name.
const ClusterEnvironment torchrun_environment{
    .name = "torchrun",
    .title = "torchrun",
    .nodes_option = "--nnodes={}",
    .ranks_option = "--nproc-per-node={}",
    .detect = [](const Environment& environment) { return environment("TORCHELASTIC_RUN_ID").has_value(); },
    .read = torchrun_placement,
};

/// It only starts the processes and gives no address; no MPI library is used.
const ClusterEnvironment openmpi_environment{
    .name = "openmpi",
    .title = "Open MPI's mpirun",
    .nodes_option = "a host list of {} hosts",
    .ranks_option = "--map-by ppr:{}:node",
    .detect = [](const Environment& environment) { return environment("OMPI_COMM_WORLD_SIZE").has_value(); },
    .read = openmpi_placement,
};

/// Hydra and launchers built on it. They give no address and no job id.
const ClusterEnvironment mpich_environment{
    .name = "mpich",
    .title = "MPICH's mpirun",
    .nodes_option = "a host list of {} hosts",
    .ranks_option = "-ppn {}",
    .detect = [](const Environment& environment) { return environment("PMI_RANK") && environment("MPI_LOCALNRANKS"); },
    .read = mpich_placement,
};

/// horovodrun with Gloo. With MPI it uses mpirun, whose variables are detected. It gives the address of the host on which it runs, which
/// usually is that of rank 0.
const ClusterEnvironment horovod_environment{
    .name = "horovod",
    .title = "horovodrun",
    .nodes_option = "-H with {} hosts",
    .ranks_option = "-H HOST:{},...",
    .detect = [](const Environment& environment) { return environment("HOROVOD_RANK").has_value(); },
    .read = horovod_placement,
};

/// bagua.distributed.launch. bagua.distributed.run is a form of torchrun, and detected as such.
const ClusterEnvironment bagua_environment{
    .name = "bagua",
    .title = "Bagua's launcher",
    .nodes_option = "--nnodes={}",
    .ranks_option = "--nproc_per_node={}",
    .detect = [](const Environment& environment) { return environment("BAGUA_SERVICE_PORT").has_value(); },
    .read = bagua_placement,
};

/// Kubeflow's PyTorchJob: one process in each pod. No variable identifies it, so it is selected by name only. With nprocPerNode, the pods
/// run torchrun, which is detected.
const ClusterEnvironment kubeflow_environment{
    .name = "kubeflow",
    .title = "Kubeflow",
    .nodes_option = "{} replicas, master and workers together",
    .ranks_option = "{} for each pod, and a pod has one; with nprocPerNode the pods run torchrun",
    .block_option = "{} for each pod",
    .detect = [](const Environment&) { return false; },
    .read = kubeflow_placement,
};

/// The supervisor starts all workers of its node. For several nodes, apply_node_options() sets the ranks.
const ClusterEnvironment local_environment{
    .name = "local",
    .title = "local",
    .detect = [](const Environment&) { return true; },
    .read = local_placement,
};

const ClusterEnvironment lsf_environment{
    .name = "lsf",
    .title = lsf_title,
    .nodes_option = "jsrun --nrs={}",
    .ranks_option = "jsrun --tasks_per_rs={}",
    .block_option = "jsrun --tasks_per_rs={} --launch_distribution=packed",
    .detect = detect_lsf,
    .read = read_lsf,
};

}  // namespace runner
