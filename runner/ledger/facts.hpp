// What a run's record says of where it was started: the state of the code, and a process that cannot be mistaken for
// another.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace runner {

/// {commit, branch, dirty, diff_hash} of the work tree that holds `directory`; null where there is none or no git.
/// commit is null before the first commit, branch is null on a detached head. `dirty`: tracked changes or untracked
/// files; diff_hash then addresses both (the changes by content, untracked files by name) and is null otherwise. Each
/// git command may take `timeout`; what was not answered in time is null.
nlohmann::json git_state(const std::filesystem::path& directory,
                         std::chrono::milliseconds timeout = std::chrono::milliseconds(2000));

/// Names a process so that neither a reused pid nor a reboot nor another machine can be taken for it.
struct ProcessIdentity {
  std::string host;
  std::string machine;        ///< /etc/machine-id; "": not known
  std::string boot_id;        ///< differs after each boot
  std::string pid_namespace;  ///< pids are comparable only within one (containers)
  int64_t pid = 0;
  int64_t start_time = 0;  ///< clock ticks since boot
};

/// The process that asks.
ProcessIdentity this_process();

std::string boot_id();

/// When process `pid` started, in clock ticks since boot; nothing when there is no such process, or it is a zombie.
std::optional<int64_t> process_start_time(int64_t pid);

/// A heartbeat older than this makes a process on another host count as gone.
constexpr double heartbeat_lease_seconds = 300;

/// Whether `owner` has ended, as `observer` can tell: on the same machine by boot id, pid and start time; elsewhere (on
/// another machine, perhaps of the same host name, or in another pid namespace) by the age of its last heartbeat.
bool is_gone(const ProcessIdentity& owner, double heartbeat, const ProcessIdentity& observer, double now);

}  // namespace runner
