// Facts about the start of a run: the state of the code in git, and the unique identity of a process.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// {commit, branch, dirty, diff_hash} of the work tree that contains `directory`; null if there is no work tree or no git.
/// commit is null before the first commit; branch is null on a detached head. `dirty`: there are tracked changes or
/// untracked files; diff_hash is then a hash of the changes' content and the untracked files' names, otherwise null. Each
/// git command may take up to `timeout`; values that git does not return in time are null.
nlohmann::json git_state(const std::filesystem::path& directory,
                         std::chrono::milliseconds timeout = std::chrono::milliseconds(2000));

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

std::string boot_id();

/// A process on another host is considered gone if its heartbeat is older than this.
constexpr double heartbeat_lease_seconds = 300;

/// Whether `owner` has ended, as far as `observer` can determine. On the same machine, boot id, pid and start time are
/// compared. On another machine (which may have the same host name) or in another pid namespace, the age of the last
/// heartbeat decides.
bool is_gone(const ProcessIdentity& owner, double heartbeat, const ProcessIdentity& observer, double now);

}  // namespace runner
