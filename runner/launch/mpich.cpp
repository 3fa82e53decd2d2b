// MPICH's mpirun (Hydra) and those built on it: ranks from PMI_* and MPI_LOCAL*, neither address nor job id.
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "runner/base/error.hpp"
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

/// Hydra gives the ranks of a node nothing in common but the process that started them on this node (hydra_pmi_proxy):
/// the nearest ancestor whose environment has no PMI_RANK. Wrapper shells between it and us have one and are passed
/// over.
int proxy_process() {
  int pid = ::getppid();
  while (pid > 1) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    std::string variables = '\0' + std::string(std::istreambuf_iterator<char>(file), {});
    if (variables.find(std::string("\0PMI_RANK=", 10)) == std::string::npos) break;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line(std::istreambuf_iterator<char>(stat), {});
    size_t name_end = line.rfind(')');  // "pid (name) state ppid ...", and a name may hold anything
    if (name_end == std::string::npos || name_end + 4 >= line.size()) break;
    pid = std::atoi(line.c_str() + name_end + 4);
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
        "MPICH's mpirun started {} ranks on {} nodes but gives neither an address to meet at nor a job id: set "
        "MASTER_ADDR (the host "
        "of rank 0) and MASTER_PORT for every rank",
        placement.world_size, placement.num_nodes);
  if (placement.num_nodes == 1) placement.job_id = std::to_string(proxy_process());
  variables.set_meeting_point(placement, std::nullopt, "mpich/" + placement.job_id);
  // Each node has a proxy of its own: what the nodes have in common is where they are told to meet.
  if (placement.num_nodes > 1) placement.job_id = fmt::format("{}:{}", placement.master_addr, placement.master_port);
  return placement;
}

}  // namespace

const ClusterEnvironment mpich_environment{
    "mpich", "MPICH's mpirun", "a host list of {} hosts", "-ppn {}", "-ppn {}", started_by_mpich, mpich_placement};

}  // namespace runner
