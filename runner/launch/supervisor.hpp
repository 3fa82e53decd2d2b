// The supervisor: starts the local workers, reads events, passes signals on, restarts, tells the first cause of a
// failure.
//
// Each worker leads a process group of its own, so a Ctrl-C on the terminal reaches the supervisor only; a Ctrl-Z is
// passed on.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/launch/cluster.hpp"

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
  /// Global rank 0's supervisor listens on it and passes the socket; 0 = a free one (all ranks are ours).
  int master_port = 0;
  std::map<std::string, std::string> environment;  ///< added for every rank (OMP_NUM_THREADS, OMP_WAIT_POLICY, ...)
  std::string log_dir;                             ///< rank-N.log: stdout and stderr of rank N, appended
  int64_t shm_bytes = 0;  ///< > 0: a memfd of that size, its descriptor in RUNNER_SHM_FD of every local rank
  std::chrono::seconds grace_time{30};
  int64_t max_restarts = 0;
};

/// Fills the group's ranks, nodes and address from a placement: its one rank when launched, else all local ranks.
void place(WorkerGroup& group, const Placement& placement);

/// All are called from the thread that called supervise(). An exception from one kills the workers and leaves
/// supervise().
struct SupervisorHooks {
  /// The workers' events, and notes of our own about stopping (of rank `first_rank`).
  std::function<void(const nlohmann::json& event)> on_event;
  std::function<void()> on_tick;  ///< at least 5 times a second
  /// Before each restart: the attempt's number (1 = first restart) and why. May change the group's arguments (resume
  /// point).
  std::function<void(WorkerGroup& group, int attempt, const std::string& why)> on_restart;
};

struct Outcome {
  ExitCode code = ExitCode::done;
  std::string status;  ///< finished | failed | interrupted | preempted
  /// One message: the rank and what happened to it first (its `failed` event, its signal, its exit code).
  std::string first_cause;
  int failed_rank = -1;
  int restarts = 0;
};

/// Runs the group to its end. SIGINT and SIGTERM to us are passed to the workers (SIGTERM), which checkpoint at the
/// next step boundary and exit with 3; after grace_time, or at a second Ctrl-C, they are killed. SIGHUP counts as
/// SIGTERM. A worker that dies or reports `failed` makes the others be stopped: SIGTERM, and SIGKILL after 2 s. Workers
/// die with us (PR_SET_PDEATHSIG), also when we are killed with -9; the calling thread must therefore be one that
/// stays.
///
///   how it ended                                                   status       code
///   every worker exited 0                                          finished     0
///   SIGINT first, workers gone (also when killed)                  interrupted  130
///   SIGTERM or SIGHUP first, or workers exited 3 by themselves     preempted    3
///   a worker failed, of kind usage / environment / any other       failed       2 / 4 / 1
///
/// A failure while the workers were asked to stop counts as failed: their last checkpoint may be missing. Usage errors
/// and non-finite losses are not restarted. Throws Error(environment) if the workers cannot be started at all. One call
/// at a time in a process. Signal handlers are as before when it returns.
Outcome supervise(WorkerGroup group, const SupervisorHooks& hooks);

}  // namespace runner
