#include "runner/ledger/process_identity.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "runner/base/host_name.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

std::string boot_id() { return std::string(trim(read_proc("/proc/sys/kernel/random/boot_id"))); }

}  // namespace

ProcessIdentity this_process() {
  ProcessIdentity me;
  me.host = host_name();
  me.machine = std::string(trim(read_proc("/etc/machine-id")));
  me.boot_id = boot_id();
  std::error_code ignored;
  me.pid_namespace = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  me.pid = ::getpid();
  if (const auto stat = read_process_stat(me.pid)) me.start_time = stat->start_time;
  return me;
}

bool is_gone(const ProcessIdentity& owner, double heartbeat, const ProcessIdentity& observer, double now) {
  const bool lease_over = now - heartbeat > heartbeat_lease_seconds;
  if (owner.host != observer.host || owner.machine != observer.machine) return lease_over;
  // Without machine ids, two machines may have the same host name. A different boot id then proves nothing.
  if (owner.boot_id != observer.boot_id) return lease_over || !owner.machine.empty();
  if (owner.pid_namespace != observer.pid_namespace) return lease_over;
  if (::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH) return true;
  const auto stat = read_process_stat(owner.pid);
  if (!stat) return lease_over;  // it is hidden, so only the existence of the pid is known
  return stat->has_ended() || stat->start_time != owner.start_time;
}

}  // namespace runner
