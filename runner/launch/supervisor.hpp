// The supervisor: starts the local workers, reads their events, passes signals on, restarts, and tells the first cause of a failure.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/error.hpp"

namespace runner {

/// One group of workers on this node.
struct WorkerGroup {
  std::string worker;                              ///< path of runner-worker
  std::vector<std::string> arguments;              ///< the same for every rank, e.g. {"RUN_DIR/resolved.toml"}
  int first_rank = 0, local_size = 1, world_size = 1;
  int local_rank_offset = 0;                       ///< > 0 when launched by torchrun/srun: we own one rank of several on this node
  int node_rank = 0, num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;                             ///< 0: the supervisor listens on a free one and passes the socket to global rank 0
  std::map<std::string, std::string> environment;  ///< added for every rank (OMP_NUM_THREADS, OMP_WAIT_POLICY, ...)
  std::string log_dir;                             ///< rank-N.log: stdout and stderr of rank N
  int64_t shm_bytes = 0;                           ///< > 0: a memfd of that size, its descriptor in RUNNER_SHM_FD of every local rank
  std::chrono::seconds grace_time{30};
  int64_t max_restarts = 0;
};

struct SupervisorHooks {
  std::function<void(const nlohmann::json& event)> on_event;
  std::function<void()> on_tick;                                       ///< at least 5 times a second
  /// Before each restart: the attempt's number (1 = first restart) and why. May change the group's arguments (resume point).
  std::function<void(WorkerGroup& group, int attempt, const std::string& why)> on_restart;
};

struct Outcome {
  ExitCode code = ExitCode::done;
  std::string status;       ///< finished | failed | interrupted | preempted
  std::string first_cause;  ///< one message: the rank and what happened to it first (its `failed` event, its signal, its exit code)
  int failed_rank = -1;
  int restarts = 0;
};

/// Runs the group to its end. SIGINT and SIGTERM to us are passed to the workers (SIGTERM), which checkpoint at the next step
/// boundary and exit; after grace_time, or at a second Ctrl-C, they are killed. A worker that dies makes the others be stopped
/// within seconds. Workers die with us (PR_SET_PDEATHSIG), also when we are killed with -9.
Outcome supervise(WorkerGroup group, const SupervisorHooks& hooks);

}  // namespace runner
