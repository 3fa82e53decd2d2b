// Open MPI's mpirun: it sets the ranks (OMPI_COMM_WORLD_*), but no address. mpirun only starts the processes; no MPI library
// is used.
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

bool started_by_openmpi(const Environment& environment) { return environment("OMPI_COMM_WORLD_SIZE").has_value(); }

Placement openmpi_placement(const Environment& environment) {
  Variables variables(environment, "Open MPI's mpirun");
  Placement placement;
  placement.cluster = "openmpi";
  placement.launched = true;
  placement.rank = variables.number({"OMPI_COMM_WORLD_RANK"});
  placement.world_size = variables.number({"OMPI_COMM_WORLD_SIZE"});
  placement.local_rank = variables.number({"OMPI_COMM_WORLD_LOCAL_RANK"});
  placement.local_size = variables.number({"OMPI_COMM_WORLD_LOCAL_SIZE"});
  // OMPI_COMM_WORLD_NODE_RANK is the rank within the node. The node's number follows from block placement, which
  // check_placement() verifies.
  if (placement.local_size > 0) {
    placement.node_rank = placement.rank / placement.local_size;
    placement.num_nodes = placement.world_size / placement.local_size;
  }
  placement.job_id = variables.text({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}).value_or("");
  variables.set_meeting_point(placement, std::nullopt, "openmpi/" + placement.job_id);
  return placement;
}

}  // namespace

const ClusterEnvironment openmpi_environment{
    .name = "openmpi",
    .title = "Open MPI's mpirun",
    .nodes_option = "a host list of {} hosts",
    .ranks_option = "--map-by ppr:{}:node",
    .block_option = "--map-by ppr:{}:node",
    .detect = started_by_openmpi,
    .read = openmpi_placement,
};

}  // namespace runner
