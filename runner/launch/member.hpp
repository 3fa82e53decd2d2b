// The leader's knowledge of another supervisor, and the workers that it controls through it. members.hpp describes the protocol.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/launch/cluster.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/message_socket.hpp"
#include "runner/launch/worker.hpp"

namespace runner {

/// The data that a supervisor sends to rank 0's supervisor when it joins.
struct Introduction {
  Placement placement;
  std::string host;
  /// {section: {key: value}}: settings that must be equal on all supervisors: the recipe, the version, ...
  nlohmann::json alike = nlohmann::json::object();
  std::string secret = "";  ///< of the connections (nodes_secret()); never sent

  /// The first rank that this supervisor runs.
  int first_rank() const { return placement.rank; }
  int rank_count() const { return placement.launched ? 1 : placement.local_size; }
};

nlohmann::json to_json(const Introduction& introduction);
/// Throws BadMessage if `json` is not an introduction, or has values that no supervisor has.
Introduction introduction_from_json(const nlohmann::json& json);

/// Why the ranks of `other` do not fit the world of `leader`; "" if they do.
std::string misplacement(const Introduction& leader, const Introduction& other);
/// The settings that differ between `leader` and `other`; "" if there are none.
std::string disagreement(const Introduction& leader, const Introduction& other);

/// "rank 2 (node 1, host gpu07)"; in an elastic run "the node gpu07".
std::string describe(const Introduction& introduction);

/// One supervisor with its unread messages, sorted by rank. What one of them sends is bounded, so that it can neither keep the leader from
/// the others nor fill its memory: the rest waits at the sender, and whoever fills an inbox is lost.
struct Member {
  /// The most that one call of receive() reads. The message that reaches the bytes is still taken.
  static constexpr size_t messages_at_once = 1000, bytes_at_once = 1 << 20;
  /// The most that an inbox holds of events that no worker reads: of a node that waits, or of a worker that has ended.
  static constexpr size_t events_of_inbox = 10'000, bytes_of_inbox = 8 << 20;
  static constexpr size_t signals_kept = 16;  ///< further ones say nothing new

  struct Inbox {
    std::vector<nlohmann::json> events;
    size_t bytes = 0;  ///< of the events
    std::optional<WorkerExit> exit;
  };

  MessageSocket socket;
  Introduction introduction;
  std::string address;           ///< at which other hosts reach it
  std::map<int, Inbox> inboxes;  ///< by the first rank of a worker
  int ranks_of_worker = 1;
  std::vector<int> signals;
  int leaving = 0;            ///< the signal for which the node leaves an elastic run; 0 = it stays
  bool newcomer = false;      ///< has ranks in this attempt of an elastic run, which trained before without it
  bool told_to_wait = false;  ///< that it has no ranks in an elastic run

  /// Reads and sorts what has arrived. Closes the connection if the peer does not follow the protocol, or fills an inbox.
  void receive();
  /// Reads as much as receive(), and forgets it.
  void drop_received();
  void sort(nlohmann::json& message);
  void keep(int worker, nlohmann::json event);
  int rank_in(const nlohmann::json& message) const;
};

/// The supervisor that said `hello`; its socket is not open yet. Null if the message is not a hello.
std::unique_ptr<Member> member_of(const nlohmann::json& hello);

/// A worker of the member, which must outlive it.
std::unique_ptr<Worker> remote_worker(Member& member, int rank, std::string log_file);

/// How a supervisor of an elastic run ends that its user stops with `signal`: interrupted (SIGINT) or preempted.
Outcome outcome_of_leaving(int signal);
/// The message that ends a supervisor with this outcome.
nlohmann::json end_message(const Outcome& outcome);
/// Sends the outcome as the last message, and closes the connection.
void turn_away(MessageSocket& socket, const Outcome& outcome);

}  // namespace runner
