// The unique identity of a process, and whether it has ended.
#pragma once
#include <cstdint>
#include <string>

namespace runner {

/// Identifies a process uniquely, also across reused pids, reboots and machines.
struct ProcessIdentity {
  std::string host;
  std::string machine;        ///< /etc/machine-id; empty if unknown
  std::string boot_id;        ///< differs after each boot
  std::string pid_namespace;  ///< pids are comparable only within one (containers)
  int64_t pid = 0;
  int64_t start_time = 0;  ///< clock ticks since boot
};

/// The identity of the calling process.
ProcessIdentity this_process();

/// A process on another host is considered gone if its heartbeat is older than this. The clocks of machines that share a ledger must
/// agree to less than that.
constexpr double heartbeat_lease_seconds = 300;

/// Whether `owner` has ended, as far as `observer` can determine. On the same machine, boot id, pid and start time are
/// compared. On another machine (which may have the same host name) or in another pid namespace, the age of the last
/// heartbeat decides.
bool is_gone(const ProcessIdentity& owner, double heartbeat, const ProcessIdentity& observer, double now);

}  // namespace runner
