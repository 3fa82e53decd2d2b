// A supervisor that does not lead: it meets rank 0's and runs its own workers as that one says (protocol: members.hpp).
#pragma once
#include <chrono>
#include <string>

#include "runner/launch/introduction.hpp"
#include "runner/launch/message_socket.hpp"
#include "runner/launch/outcome.hpp"
#include "runner/launch/worker_group.hpp"

namespace runner {

/// Connects to rank 0's supervisor, trying until the deadline. Throws Error(environment) when nobody answers, or what
/// it answered.
MessageSocket join_leader(const Introduction& self, std::chrono::seconds deadline);

/// Runs the workers of `group`, whose arguments, environment and log folder come from the leader; returns how it says
/// the run ended. SIGINT and SIGTERM are passed to the leader, which decides for all. When it goes away without a word
/// the workers are killed and Error(run_failed) is thrown.
Outcome follow(MessageSocket& leader, const Introduction& self, WorkerGroup group);

}  // namespace runner
