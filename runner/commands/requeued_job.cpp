#include "runner/commands/requeued_job.hpp"

#include <poll.h>

#include <chrono>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/cluster.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/ledger/process_identity.hpp"

namespace runner {

namespace {

/// Waits for so long, or until a signal asks this process to stop, which throws.
void pause_unless_stopped(StopSignals& signals, std::chrono::milliseconds time) {
  pollfd received{.fd = signals.fd(), .events = POLLIN, .revents = 0};
  ::poll(&received, 1, static_cast<int>(time.count()));
  for (const int signal : signals.take())
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP)
      throw Error(signal == SIGINT ? ExitCode::interrupted : ExitCode::preempted, "stopped before it could continue");
}

}  // namespace

void wait_if_requeued(const std::string& what, const std::function<bool()>& over) {
  const auto variable = process_environment();
  if (variable("SLURM_RESTART_COUNT").value_or("0") == "0" || over()) return;
  constexpr std::chrono::seconds between{5};
  constexpr double margin = 60;  // clocks of hosts differ, and locks of a network filesystem end later
  if (variable("SLURM_PROCID").value_or("0") == "0")
    log::info(
        "waiting for {}: Slurm has started this job again, and a process on another host counts as gone {} after "
        "its last heartbeat",
        what, format_duration(heartbeat_lease_seconds));
  StopSignals signals;
  const double deadline = steady_seconds() + heartbeat_lease_seconds + margin;
  while (!over() && steady_seconds() < deadline) pause_unless_stopped(signals, between);
}

}  // namespace runner
