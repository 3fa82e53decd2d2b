// bagua.distributed.launch: the variables of torch.distributed.launch, and BAGUA_SERVICE_PORT, by which it is detected.
//
// bagua.distributed.run is a form of torchrun, and detected as such.
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

bool started_by_bagua(const Environment& environment) { return environment("BAGUA_SERVICE_PORT").has_value(); }

Placement bagua_placement(const Environment& environment) {
  Variables variables(environment, "Bagua's launcher");
  Placement placement;
  placement.cluster = "bagua";
  placement.launched = true;
  placement.rank = variables.number({"RANK"});
  placement.world_size = variables.number({"WORLD_SIZE"});
  placement.local_rank = variables.number({"LOCAL_RANK"});
  placement.local_size = variables.number({"LOCAL_WORLD_SIZE"});
  placement.node_rank = variables.number({"NODE_RANK"});
  placement.num_nodes = placement.local_size > 0 ? placement.world_size / placement.local_size : 1;
  placement.job_id =
      "bagua/" + variables.text({"MASTER_ADDR"}).value_or("") + ":" + variables.text({"MASTER_PORT"}).value_or("");
  variables.set_meeting_point(placement, std::nullopt, placement.job_id);
  return placement;
}

}  // namespace

const ClusterEnvironment bagua_environment{
    .name = "bagua",
    .title = "Bagua's launcher",
    .nodes_option = "--nnodes={}",
    .ranks_option = "--nproc_per_node={}",
    .block_option = "--nproc_per_node={}",
    .detect = started_by_bagua,
    .read = bagua_placement,
};

}  // namespace runner
