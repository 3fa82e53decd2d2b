// The other supervisors of an elastic run, which may connect and leave at any time. Those that have no ranks in the current attempt
// wait for the next one.
//
// The leader numbers the nodes: itself 0, then the others in the order in which they came. It must stay: it has the store, the ledger and
// the decisions, as the host of torchrun's c10d rendezvous.
#pragma once
#include <string>
#include <vector>

#include "runner/launch/arrivals.hpp"
#include "runner/launch/members.hpp"

namespace runner {

class ElasticMembers : public Members {
 public:
  /// Listens at the leader's address. Throws Error(environment) if the port is taken.
  explicit ElasticMembers(Introduction leader);

  /// Accepts supervisors that have connected, and ends those that wait and want to leave; does not wait. A supervisor that was not
  /// started like the leader is turned away with the reason.
  void look();
  /// Waits until there may be something to look at, or a byte on `descriptor`; at most `seconds`.
  void wait(double seconds, int descriptor = -1) const;

  /// Nodes that are there and do not leave, with the leader's.
  int there() const;
  /// A member of the current attempt that wants to leave: "node 1 (gpu07) leaves (SIGTERM)"; "" if there is none.
  std::string leaving() const;
  /// Tells the users of those that wait why, once.
  void tell_waiting(const std::string& why);
  /// When the last supervisor was accepted, in steady seconds; the start without any.
  double last_arrival() const { return last_arrival_; }

  /// Sends their end to the members of the last attempt that want to leave. Call between attempts.
  void part_with_leaving();
  /// Chooses the members of the next attempt, for `nodes` nodes with the leader's, and numbers them. Others wait. Members that leave get
  /// their end. Call between attempts. Returns what has changed, e.g. {"node 1 (gpu07) was lost", "gpu09 joined"}.
  std::vector<std::string> take_part(int nodes);
  /// SupervisorHooks::end_newcomer.
  bool end_newcomer(int rank, const Outcome& failure);
  /// Sends the run's outcome to all members, and to those that wait, which then end with the same outcome.
  void end(const Outcome& outcome);

 private:
  void admit(Arrival arrival);
  void part_with(std::unique_ptr<Member> member, const Outcome& outcome);

  Introduction leader_;
  Arrivals arrivals_;
  std::vector<std::unique_ptr<Member>> waiting_;  ///< in the order in which they came
  struct Parting {
    std::unique_ptr<Member> member;
    double since;  ///< steady seconds
  };
  std::vector<Parting> parting_;   ///< have got their end, and have not closed the connection yet
  std::vector<std::string> left_;  ///< e.g. "node 1 (gpu07) left (SIGTERM)", since the last take_part()
  bool trains_ = false;            ///< there has been an attempt
  double last_arrival_;
};

}  // namespace runner
