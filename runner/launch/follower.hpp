// A follower: a supervisor that connects to rank 0's supervisor (the leader) and runs its workers on the leader's
// commands. members.hpp describes the protocol.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "runner/base/files.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/member.hpp"
#include "runner/launch/message_socket.hpp"
#include "runner/launch/worker_group.hpp"

namespace runner {

// The checks of a node before it runs what the leader's run folder names, if no secret says who the leader is.

/// Throws Error if the folder of a run names code that this node's own recipe does not name. The recipe is known to the caller of follow().
using RunFolderCheck = std::function<void(const fs::path& run_dir)>;

/// The folder of the run whose workers are to start: the one that has their logs. Throws BadMessage if they are told to read another one.
fs::path run_folder_of(const WorkerGroup& group);

/// Why user `me` runs nothing that a path without links says: it, or a folder that it is in, belongs to another user, who is not root, or
/// every user can write to it. "" if there is no reason. A group that may write a folder is trusted. What is missing must be in a folder
/// that others cannot write to.
std::string why_untrusted(const fs::path& path, uid_t me);

/// Checks the group's run folder and cache, which has compiled programs, and then calls `check`, if there is one. Gives the workers the
/// paths without links that were checked: others cannot replace them later. Throws Error(environment).
void require_trusted_folders(WorkerGroup& group, const RunFolderCheck& check);

/// Connects to the leader; tries again until the deadline. Throws Error(environment) if there is no answer, and the
/// leader's error if it rejects this supervisor.
MessageSocket join_leader(const Introduction& self, std::chrono::seconds deadline);

/// Runs the workers of `group` with the arguments, environment and log folder that the leader sends. Returns the
/// outcome that the leader sends. Forwards SIGINT and SIGTERM to the leader, which decides for all ranks. In an elastic
/// run they mean that this node leaves; the outcome is then that of this node (interrupted or preempted). A node that
/// has not had workers leaves at once, and a second Ctrl-C kills the workers. If the workers of an elastic run cannot
/// be started here, throws that error, and the leader goes on without this node. If the connection to the leader is
/// lost, kills the workers and throws Error(run_failed). Without a secret, anybody may be the leader: workers start
/// only if this user or root has written the run's folder, and if `check` agrees.
Outcome follow(MessageSocket& leader, const Introduction& self, WorkerGroup group, RunFolderCheck check = {});

}  // namespace runner
