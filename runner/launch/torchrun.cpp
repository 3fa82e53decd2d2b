// torchrun (torch.distributed.run): it sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK and an address.
//
// It is detected by TORCHELASTIC_RUN_ID. A launcher that sets the same variables without it must be selected by name.
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

bool started_by_torchrun(const Environment& environment) { return environment("TORCHELASTIC_RUN_ID").has_value(); }

Placement torchrun_placement(const Environment& environment) {
  Variables variables(environment, "torchrun");
  Placement placement;
  placement.cluster = "torchrun";
  placement.launched = true;
  placement.rank = variables.number({"RANK"});
  placement.world_size = variables.number({"WORLD_SIZE"});
  placement.local_rank = variables.number({"LOCAL_RANK"});
  placement.local_size = variables.number({"LOCAL_WORLD_SIZE"});
  placement.node_rank = variables.number({"GROUP_RANK", "NODE_RANK"});
  placement.num_nodes = variables.optional_number({"GROUP_WORLD_SIZE"})
                            .value_or(placement.local_size > 0 ? placement.world_size / placement.local_size : 1);
  placement.job_id = variables.text({"TORCHELASTIC_RUN_ID"}).value_or("torchrun");
  std::string port = variables.text({"MASTER_PORT"}).value_or("");
  variables.set_meeting_point(placement, std::nullopt, "torchrun/" + placement.job_id);
  // torchrun's agent already listens on MASTER_PORT, for the store of Python ranks. runner uses a different port.
  if (variables.text({"TORCHELASTIC_USE_AGENT_STORE"}) == "True")
    placement.master_port = derived_port("torchrun/" + placement.job_id + "/" + port);
  return placement;
}

}  // namespace

const ClusterEnvironment torchrun_environment{
    .name = "torchrun",
    .title = "torchrun",
    .nodes_option = "--nnodes={}",
    .ranks_option = "--nproc-per-node={}",
    .block_option = "--nproc-per-node={}",
    .detect = started_by_torchrun,
    .read = torchrun_placement,
};

}  // namespace runner
