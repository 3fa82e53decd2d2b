// Identifies processes by information from /proc.
#include "runner/ledger/facts.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// Reads a file of /proc, which has no size. Returns "" if the file is missing or unreadable.
std::string read_proc(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string boot_id() { return std::string(trim(read_proc("/proc/sys/kernel/random/boot_id"))); }

std::optional<int64_t> process_start_time(int64_t pid) {
  const std::string stat = read_proc("/proc/" + std::to_string(pid) + "/stat");
  // The second field is the command in parentheses and may contain any character, so fields are counted after the last ')'.
  const size_t command_end = stat.rfind(')');
  if (command_end == std::string::npos) return std::nullopt;
  const auto fields = split(std::string_view(stat).substr(command_end + 2), ' ');
  constexpr size_t state = 0, start_time = 19;  // fields 3 and 22 of proc(5)
  if (fields.size() <= start_time || fields[state] == "Z" || fields[state] == "X") return std::nullopt;
  return std::strtoll(fields[start_time].c_str(), nullptr, 10);
}

ProcessIdentity this_process() {
  ProcessIdentity me;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  me.host = host;
  me.machine = std::string(trim(read_proc("/etc/machine-id")));
  me.boot_id = boot_id();
  std::error_code ignored;
  me.pid_namespace = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  me.pid = ::getpid();
  me.start_time = process_start_time(me.pid).value_or(0);
  return me;
}

bool is_gone(const ProcessIdentity& owner, double heartbeat, const ProcessIdentity& observer, double now) {
  const bool lease_over = now - heartbeat > heartbeat_lease_seconds;
  if (owner.host != observer.host || owner.machine != observer.machine) return lease_over;
  // Without machine ids, two machines may have the same host name. A different boot id then proves nothing.
  if (owner.boot_id != observer.boot_id) return lease_over || !owner.machine.empty();
  if (owner.pid_namespace != observer.pid_namespace) return lease_over;
  if (::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH) return true;
  const auto start_time = process_start_time(owner.pid);
  // Other users' processes may be hidden (hidepid). Then only the existence of the pid is known.
  if (!start_time && read_proc("/proc/" + std::to_string(owner.pid) + "/stat").empty()) return lease_over;
  return start_time != owner.start_time;
}

}  // namespace runner
