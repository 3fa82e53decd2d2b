// Several supervisors of one run: rank 0's leads; the others start, watch and signal workers as it says (follower.hpp).
//
// They meet over TCP where the placement says (master_addr, master_port), before any worker starts, and stay connected
// until the run's end. So there is one ledger, one decision to restart and one first cause, and what reaches one
// supervisor (Ctrl-C, SIGTERM) reaches all ranks. One JSON object a line:
//
//   to the leader   {say: "hello", ...}                      who is there, and what it would run (Introduction)
//                   an event of events.hpp                   of one of its workers
//                   {say: "exit", rank, ...}                 a worker's end (WorkerExit)
//                   {say: "signal", signal}                  somebody asks this supervisor to stop
//   to the others   {say: "welcome"}                         to a hello
//                   {say: "start", ...}                      an attempt: arguments, environment, the store's port
//                   {say: "send", rank, signal, group}       to a worker, or to its process group
//                   {say: "end", code, status, first_cause}  the last word
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runner/launch/introduction.hpp"
#include "runner/launch/message_socket.hpp"
#include "runner/launch/outcome.hpp"
#include "runner/launch/worker_group.hpp"

namespace runner {

/// The others, as rank 0's supervisor has them.
class Members {
 public:
  /// Waits until a supervisor is here for every rank of `leader`'s world. Throws Error(environment) naming the ranks
  /// and nodes that did not come within `deadline`, or Error(usage) naming what another would run differently; those
  /// that came are told the same.
  Members(const Introduction& leader, std::chrono::seconds deadline);
  ~Members();
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  /// The address by which the other hosts reach this one.
  const std::string& own_address() const { return own_address_; }
  /// Has every member start its workers with `group`'s arguments, environment and log folder; rank 0's store listens on
  /// `store_port`. Gives their workers, which must not outlive this object.
  std::vector<std::unique_ptr<Worker>> start(const WorkerGroup& group, int store_port);
  /// SIGINT and SIGTERM that reached another supervisor since the last call.
  std::vector<int> take_signals();
  bool anyone_gone() const;
  /// Tells everybody how the run ended; they end alike.
  void end(const Outcome& outcome);

  struct Member;

 private:
  void meet(const Introduction& leader, std::chrono::seconds deadline);
  void admit(MessageSocket& socket, const Introduction& leader, const nlohmann::json& hello);
  std::vector<int> missing_ranks(const Introduction& leader) const;
  void settle_addresses();

  std::vector<std::unique_ptr<Member>> members_;
  std::string own_address_, proof_file_;
};

/// The file in a run's log folder, and what stands in it, by which a member sees that the folder is shared.
constexpr const char* proof_file_name = ".shared";

}  // namespace runner
