// horovodrun with Gloo: it sets HOROVOD_RANK, HOROVOD_SIZE and the same for the ranks and the number of nodes.
//
// With MPI it uses mpirun, whose variables are detected. It gives the address of the host on which it runs, which usually is that of rank 0.
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

bool started_by_horovodrun(const Environment& environment) { return environment("HOROVOD_RANK").has_value(); }

Placement horovod_placement(const Environment& environment) {
  Variables variables(environment, "horovodrun");
  Placement placement;
  placement.cluster = "horovod";
  placement.launched = true;
  placement.rank = variables.number({"HOROVOD_RANK"});
  placement.world_size = variables.number({"HOROVOD_SIZE"});
  placement.local_rank = variables.number({"HOROVOD_LOCAL_RANK"});
  placement.local_size = variables.number({"HOROVOD_LOCAL_SIZE"});
  placement.node_rank = variables.number({"HOROVOD_CROSS_RANK"});
  placement.num_nodes = variables.number({"HOROVOD_CROSS_SIZE"});
  const auto address = variables.text({"HOROVOD_GLOO_RENDEZVOUS_ADDR"});
  placement.job_id =
      "horovod/" + address.value_or("") + ":" + variables.text({"HOROVOD_GLOO_RENDEZVOUS_PORT"}).value_or("");
  variables.set_meeting_point(placement, address, placement.job_id);
  return placement;
}

}  // namespace

const ClusterEnvironment horovod_environment{
    .name = "horovod",
    .title = "horovodrun",
    .nodes_option = "-H with {} hosts",
    .ranks_option = "-H HOST:{},...",
    .block_option = "-H HOST:{},...",
    .detect = started_by_horovodrun,
    .read = horovod_placement,
};

}  // namespace runner
