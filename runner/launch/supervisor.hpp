// The supervisor of rank 0: starts the local workers, reads their events, forwards signals, restarts the workers, and
// determines the first cause of a failure.
//
// Each worker leads a separate process group, so a Ctrl-C on the terminal reaches the supervisor only. The supervisor
// forwards a Ctrl-Z.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/launch/first_cause.hpp"
#include "runner/launch/members.hpp"
#include "runner/launch/worker_group.hpp"

namespace runner {

class StopSignals;

/// Why the workers of an elastic run should stop at the next step boundary: nodes leave or join.
struct NodeChange {
  std::string why;       ///< "" = they go on
  bool leaving = false;  ///< a node leaves, and may not wait longer than grace_time
};

/// Callbacks, called from the thread that called supervise(). If one throws, the workers are killed and supervise()
/// throws that exception.
struct SupervisorHooks {
  /// Receives the workers' events, and the supervisor's notes about stopping (with rank `first_rank`).
  std::function<void(const nlohmann::json& event)> on_event;
  /// Called when the worker of rank 0 waits until all earlier events are in the ledger. The hook calls `answer` at that
  /// time, on any thread. Without this hook, the supervisor answers at once.
  std::function<void(std::function<void()> answer)> on_settle;
  std::function<void()> on_tick;              ///< at least 5 times a second
  std::function<NodeChange()> nodes_changed;  ///< makes the run elastic; called with on_tick
  /// In an elastic run: called if a rank fails before all are ready, with that rank and the outcome that the run would have. Whether its
  /// node has joined a run that trained before without it: then the hook has ended the node, and the run goes on with the others.
  std::function<bool(int rank, const Outcome& failure)> end_newcomer;
  /// Where signals to the supervisor arrive, if the caller received some before; otherwise supervise() makes its own.
  StopSignals* signals = nullptr;
  /// Called before each restart with its number (1 = first restart) and the reason. May change the group's arguments,
  /// e.g. the checkpoint to resume from.
  std::function<void(WorkerGroup& group, int restart, const std::string& why)> on_restart;
};

/// Runs the group, which contains rank 0, and the workers of `members` (other supervisors, if any) until they end. The rules
/// below apply to all ranks and to signals that any supervisor receives. If the connection to a member is lost, its ranks
/// count as failed, and there is no restart. SIGINT and SIGTERM to the supervisor are forwarded to the workers as SIGTERM.
/// The workers write a checkpoint at the next step boundary and exit with code 3. After grace_time, or at a second Ctrl-C,
/// they are killed. SIGHUP has the effect of SIGTERM. If a worker dies or reports `failed`, the others receive SIGTERM, and
/// SIGKILL after 2 s. The kernel kills the workers when the calling thread ends (PR_SET_PDEATHSIG), also after kill -9 of
/// the supervisor, so the calling thread must live as long as the run.
///
///   end of the run                                                 status       code
///   every worker exited 0                                          finished     0
///   SIGINT first, workers gone (also when killed)                  interrupted  130
///   SIGTERM with stopped_on_page first (stop_signals.hpp)          interrupted  130
///   SIGTERM or SIGHUP first, or workers exited 3 by themselves     preempted    3
///   a worker failed, of kind usage / environment / any other       failed       2 / 4 / 1
///
/// A failure after a stop signal also counts as failed, because the last checkpoint may be missing. There is no restart
/// after usage errors and non-finite losses.
///
/// In an elastic run (hooks.nodes_changed), the outcome has `regroup` if nodes change: the attempt was stopped with a
/// checkpoint for that, or a member is lost, or hooks.end_newcomer has ended one. If nodes only join, the workers have
/// no deadline, because their training is healthy. The status is then preempted. A failure of another kind with a lost
/// member counts as a restart. The caller begins the next attempt with the nodes that are there. Throws
/// Error(environment) if the workers cannot be started. A process may run only one call at a time. Restores the signal
/// handlers on return.
Outcome supervise(WorkerGroup group, const SupervisorHooks& hooks, Members* members = nullptr);

}  // namespace runner
