// MPICH's mpirun (Hydra) and launchers built on it: they set the ranks (PMI_*, MPI_LOCAL*), but no address and no job id.
#include <unistd.h>

#include "runner/base/error.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

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

bool started_by_mpich(const Environment& environment) {
  return environment("PMI_RANK").has_value() && environment("MPI_LOCALNRANKS").has_value();
}

Placement mpich_placement(const Environment& environment) {
  Variables variables(environment, "MPICH's mpirun");
  Placement placement;
  placement.cluster = "mpich";
  placement.launched = true;
  placement.rank = variables.number({"PMI_RANK"});
  placement.world_size = variables.number({"PMI_SIZE"});
  placement.local_rank = variables.number({"MPI_LOCALRANKID"});
  placement.local_size = variables.number({"MPI_LOCALNRANKS"});
  if (placement.local_size > 0) {
    placement.node_rank = placement.rank / placement.local_size;
    placement.num_nodes = placement.world_size / placement.local_size;
  }
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

}  // namespace

const ClusterEnvironment mpich_environment{
    .name = "mpich",
    .title = "MPICH's mpirun",
    .nodes_option = "a host list of {} hosts",
    .ranks_option = "-ppn {}",
    .block_option = "-ppn {}",
    .detect = started_by_mpich,
    .read = mpich_placement,
};

}  // namespace runner
