// The supervisor of rank 0: starts the local workers, reads events, passes signals on, restarts, tells the first cause
// of a failure.
//
// Each worker leads a process group of its own, so a Ctrl-C on the terminal reaches the supervisor only; a Ctrl-Z is
// passed on.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/launch/members.hpp"
#include "runner/launch/outcome.hpp"
#include "runner/launch/worker_group.hpp"

namespace runner {

/// All are called from the thread that called supervise(). An exception from one kills the workers and leaves
/// supervise().
struct SupervisorHooks {
  /// The workers' events, and notes of our own about stopping (of rank `first_rank`).
  std::function<void(const nlohmann::json& event)> on_event;
  /// The worker of rank 0 waits until all events before this moment are safe: call `answer` then, on any thread.
  /// Without this hook it is answered at once.
  std::function<void(std::function<void()> answer)> on_settle;
  std::function<void()> on_tick;  ///< at least 5 times a second
  /// Before each restart: the attempt's number (1 = first restart) and why. May change the group's arguments (resume
  /// point).
  std::function<void(WorkerGroup& group, int attempt, const std::string& why)> on_restart;
};

/// Runs the group, which has rank 0, to its end, and with it the workers of `members`, if there are other supervisors:
/// what follows holds for all ranks, and for a signal that reached any supervisor. A member that goes away takes its
/// ranks with it, and there is no restart without it. SIGINT and SIGTERM to us are passed to the workers (SIGTERM),
/// which checkpoint at the next step boundary and exit with 3; after grace_time, or at a second Ctrl-C, they are
/// killed. SIGHUP counts as SIGTERM. A worker that dies or reports `failed` makes the others be stopped: SIGTERM, and
/// SIGKILL after 2 s. Workers die with us (PR_SET_PDEATHSIG), also when we are killed with -9; the calling thread must
/// therefore be one that stays.
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
Outcome supervise(WorkerGroup group, const SupervisorHooks& hooks, Members* members = nullptr);

}  // namespace runner
