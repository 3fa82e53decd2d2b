// The workers of one node: what they are told, and how they are started.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runner/launch/cluster.hpp"
#include "runner/launch/worker.hpp"

namespace runner {

/// One group of workers on this node.
struct WorkerGroup {
  std::string worker;                  ///< path of runner-worker
  std::vector<std::string> arguments;  ///< the same for every rank, e.g. {"RUN_DIR/resolved.toml"}
  int first_rank = 0, local_size = 1, world_size = 1;
  int local_rank_offset = 0;  ///< > 0 when launched by torchrun/srun: we own one rank of several on this node
  int local_world_size = 0;   ///< ranks on this node, whoever supervises them; 0 = local_size
  int node_rank = 0, num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  /// Where rank 0's store listens: its supervisor makes the socket and passes it on; 0 = a free port.
  int master_port = 0;
  std::vector<int> cuda_indices;                   ///< the device of each rank of this group; empty on CPU
  std::map<std::string, std::string> environment;  ///< added for every rank (OMP_NUM_THREADS, OMP_WAIT_POLICY, ...)
  std::string log_dir;                             ///< rank-N.log: stdout and stderr of rank N, appended
  int64_t shm_bytes = 0;  ///< > 0: a memfd of that size, its descriptor in RUNNER_SHM_FD of every local rank
  std::chrono::seconds grace_time{30};
  int64_t max_restarts = 0;
};

/// Fills the group's ranks, nodes and address from a placement: its one rank when launched, else all local ranks.
void place(WorkerGroup& group, const Placement& placement);

/// RUN_DIR/logs/rank-N.log.
std::string log_file_of(const WorkerGroup& group, int rank);

/// What one attempt adds to a group.
struct Handout {
  int master_port = 0;
  int listen_fd = -1;        ///< for the group's first rank; -1: rank 0 is not in it
  int shm_fd = -1;           ///< for every rank; -1: none
  std::string node_address;  ///< by which the other hosts reach this one; "": all ranks are on this host
};

/// Starts the group's workers in the order of their ranks. Throws Error(environment); those already started are killed.
std::vector<std::unique_ptr<Worker>> start_workers(const WorkerGroup& group, const Handout& handout);

}  // namespace runner
