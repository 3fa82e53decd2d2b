// A follower: a supervisor that connects to rank 0's supervisor (the leader) and runs its workers on the leader's
// commands. members.hpp describes the protocol.
#pragma once
#include <chrono>

#include "runner/launch/introduction.hpp"
#include "runner/launch/message_socket.hpp"
#include "runner/launch/outcome.hpp"
#include "runner/launch/run_folder_trust.hpp"
#include "runner/launch/worker_group.hpp"

namespace runner {

/// Connects to the leader; tries again until the deadline. Throws Error(environment) if there is no answer, and the
/// leader's error if it rejects this supervisor.
MessageSocket join_leader(const Introduction& self, std::chrono::seconds deadline);

/// Runs the workers of `group` with the arguments, environment and log folder that the leader sends. Returns the
/// outcome that the leader sends. Forwards SIGINT and SIGTERM to the leader, which decides for all ranks. In an elastic run they mean
/// that this node leaves; the outcome is then that of this node (interrupted or preempted). A node that has not had workers leaves at
/// once, and a second Ctrl-C kills the workers. If the workers of an elastic run cannot be started here, throws that error, and the
/// leader goes on without this node. If the connection to the leader is lost, kills the workers and throws Error(run_failed).
/// Without a secret, anybody may be the leader: workers start only if this user or root has written the run's folder, and if `check` agrees.
Outcome follow(MessageSocket& leader, const Introduction& self, WorkerGroup group, RunFolderCheck check = {});

}  // namespace runner
