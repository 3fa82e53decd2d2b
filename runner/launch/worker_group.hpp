// The workers that one supervisor starts: their settings and their start.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runner/launch/cluster.hpp"
#include "runner/launch/worker.hpp"

namespace runner {

/// The settings of a group of workers on this node.
struct WorkerGroup {
  std::string worker;                  ///< path of runner-worker
  std::vector<std::string> arguments;  ///< the same for every rank, e.g. {"--run-dir", RUN_DIR, ...}
  int first_rank = 0, local_size = 1, world_size = 1;
  int ranks_of_worker = 1;    ///< ranks in each worker process; each is a thread
  int local_rank_offset = 0;  ///< local rank of the first worker; > 0 only under a launcher
  int local_world_size = 0;   ///< ranks of all supervisors on this node; 0 = local_size
  int node_rank = 0, num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  /// The port of rank 0's store; 0 = a free port. Rank 0's supervisor creates the socket, and the worker inherits it.
  int master_port = 0;
  std::vector<int> device_indices;                 ///< the device of each rank of this group; empty on CPU
  std::map<std::string, std::string> environment;  ///< added to every rank (OMP_NUM_THREADS, OMP_WAIT_POLICY, ...)
  std::string log_dir;                             ///< stdout and stderr of rank N are appended to rank-N.log
  int64_t shm_bytes = 0;  ///< if > 0, every local rank gets a memfd of that size in RUNNER_SHM_FD
  std::chrono::seconds grace_time{30};
  int64_t max_restarts = 0;
  /// A worker whose process is stopped (SIGSTOP) for that long fails, because the others wait for it.
  std::chrono::milliseconds stopped_limit = std::chrono::minutes(2);
};

/// Sets the group's ranks, nodes and address from a placement. Under a launcher, the group has one rank, otherwise all local
/// ranks.
void place(WorkerGroup& group, const Placement& placement);

/// RUN_DIR/logs/rank-N.log.
std::string log_file_of(const WorkerGroup& group, int rank);

/// The resources of a group for one attempt.
struct Handout {
  int master_port = 0;
  int listen_fd = -1;        ///< inherited by the group's first rank; -1 if the group does not contain rank 0
  int shm_fd = -1;           ///< inherited by every rank; -1 = none
  std::string node_address;  ///< address at which other hosts reach this host; "" if one supervisor runs all ranks
};

/// Starts the group's workers in the order of their ranks. On failure, kills the workers already started and throws
/// Error(environment).
std::vector<std::unique_ptr<Worker>> start_workers(const WorkerGroup& group, const Handout& handout);

}  // namespace runner
