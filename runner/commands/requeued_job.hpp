// Jobs that Slurm starts again after their processes were killed, as when a node fails.
#pragma once
#include <functional>
#include <string>

namespace runner {

/// In a job that Slurm has started again (SLURM_RESTART_COUNT): waits until `over` returns true. That takes at most
/// heartbeat_lease_seconds after the last heartbeat of the processes that the job had on another host; then they count as gone. A line
/// says that it waits for `what`. In other processes it does nothing. Throws Error(preempted or interrupted) if a signal ends the wait.
void wait_if_requeued(const std::string& what, const std::function<bool()>& over);

}  // namespace runner
