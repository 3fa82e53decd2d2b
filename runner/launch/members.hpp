// Several supervisors of one run. Rank 0's supervisor is the leader; the others start, watch and signal workers on its
// commands (follower.hpp).
//
// They connect over TCP to the placement's master_addr and master_port before any worker starts, and stay connected until
// the run ends. So there is one ledger, one decision to restart and one first cause, and a signal to any supervisor
// (Ctrl-C, SIGTERM) stops all ranks. With a secret, each line carries a code (lines.hpp). The protocol has one JSON object per line:
//
//   to the leader     {say: "hello", ...}                      the supervisor's Introduction
//                     an event of events.hpp                   from one of its workers
//                     {say: "exit", rank, ...}                 a worker has ended (WorkerExit)
//                     {say: "signal", signal}                  this supervisor received a signal
//                     {say: "leave", signal}                   the same in an elastic run: its node leaves
//   to the followers  {say: "welcome"}                         accepts a hello
//                     {say: "tell", text}                      a text for the user
//                     {say: "start", ...}                      starts an attempt: arguments, environment, the store's port,
//                                                              ranks and number of the node
//                     {say: "send", rank, signal, group}       signals a worker, or its process group
//                     {say: "end", code, status, first_cause}  ends the run; the last message
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runner/launch/first_cause.hpp"
#include "runner/launch/member.hpp"
#include "runner/launch/message_socket.hpp"
#include "runner/launch/worker_group.hpp"

namespace runner {

/// The leader's connections to the other supervisors.
class Members {
 public:
  /// Waits until the supervisors of all ranks of `leader`'s world have joined. Others that connect are turned away, and
  /// the wait goes on. Throws Error(environment) with the ranks and nodes that did not join within `deadline`, or
  /// Error(usage) with the settings that differ. Supervisors that have joined receive the same error.
  Members(const Introduction& leader, std::chrono::seconds deadline);
  ~Members() = default;
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  /// The address at which other hosts reach this host.
  const std::string& own_address() const { return own_address_; }
  /// Makes every member start its workers with the arguments, environment and log folder of `group`; rank 0's store listens
  /// on `store_port`. Returns the members' workers, which must not outlive this object.
  std::vector<std::unique_ptr<Worker>> start(const WorkerGroup& group, int store_port);
  /// Returns SIGINT and SIGTERM signals that other supervisors received since the last call.
  std::vector<int> take_signals();
  bool anyone_gone() const;
  /// Sends the run's outcome to all members, which then end with the same outcome.
  void end(const Outcome& outcome);

 protected:
  Members() = default;  ///< without members
  /// Decides at which addresses the members reach each other.
  void settle_addresses();

  std::vector<std::unique_ptr<Member>> members_;  ///< they have ranks in the attempt
  std::string own_address_, proof_file_;
  std::string turned_away_;  ///< why the last supervisor was that was turned away

 private:
  void meet(const Introduction& leader, std::chrono::seconds deadline);
  void admit(MessageSocket& socket, const Introduction& leader, const nlohmann::json& hello);
  std::string taken_place(const Introduction& leader, const Introduction& other) const;
  std::vector<int> missing_ranks(const Introduction& leader) const;
};

/// A file with random content in the run's log folder. Members read it to check that the folder is shared.
constexpr const char* proof_file_name = ".shared";

}  // namespace runner
