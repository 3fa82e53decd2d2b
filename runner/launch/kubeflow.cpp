// Kubeflow's PyTorchJob: one process in each pod, with RANK, WORLD_SIZE and an address, but no information about nodes.
//
// Kubeflow sets no variable that identifies it, so it is selected by name only: devices.cluster = "kubeflow". With
// nprocPerNode, the pods run torchrun, which is detected.
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

bool detect_kubeflow(const Environment&) { return false; }

Placement read_kubeflow(const Environment& environment) {
  Variables variables(environment, "Kubeflow");
  Placement placement;
  placement.cluster = "kubeflow";
  placement.launched = true;
  placement.rank = placement.node_rank = variables.number({"RANK"});
  placement.world_size = placement.num_nodes = variables.number({"WORLD_SIZE"});
  std::string addr = variables.text({"MASTER_ADDR"}).value_or("");
  std::string port = variables.text({"MASTER_PORT"}).value_or("");
  placement.job_id = "kubeflow/" + addr + ":" + port;
  variables.set_meeting_point(placement, std::nullopt, placement.job_id);
  return placement;
}

}  // namespace

const ClusterEnvironment kubeflow_environment{
    .name = "kubeflow",
    .title = "Kubeflow",
    .nodes_option = "{} replicas, master and workers together",
    .ranks_option = "{} for each pod, and a pod has one; with nprocPerNode the pods run torchrun",
    .block_option = "{} for each pod",
    .detect = detect_kubeflow,
    .read = read_kubeflow,
};

}  // namespace runner
