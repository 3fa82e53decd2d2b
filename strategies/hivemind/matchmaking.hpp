// Peers that want to average find each other.
//
// A peer that looks for a group says so in its record, with a time at which it would begin. It asks the peer with the earliest time, by
// (time, id), to lead. That peer accepts until its time is over or everybody has joined, and sends the list of members. A
// peer that asks another one, or has joined a group, sends those that ask it to its leader. The order is the same for all, so no two peers
// wait for each other. Source: matchmaking.py of hivemind; there the leader also waits if everybody has joined.
#pragma once
#include <condition_variable>
#include <memory>

#include "strategies/hivemind/gossip.hpp"

namespace runner::swarm {

struct Member {
  PeerId id = {};
  Endpoint at = {};
};
struct Group {
  PeerId id;                         ///< random
  std::vector<Member> members = {};  ///< by id, so that all add in the same order
  size_t own = 0;                    ///< index of this peer
};

class Matchmaking {
 public:
  struct Options {
    Milliseconds request_timeout{3000};  ///< of the answer to a request to lead
    size_t most_members = 64;
  };
  Matchmaking(PeerTable& table, Gossip& gossip, Server& server, const Digest& key, Options options);

  /// Looks for peers with the same purpose and the same schema until `deadline`. nullopt: there are none. `while_waiting` is called from
  /// time to time.
  std::optional<Group> find_group(const std::string& purpose, Deadline deadline,
                                  const std::function<void()>& while_waiting = {});

 private:
  /// Why a peer does not lead the peer that asks it.
  enum class Refusal : uint8_t { not_searching = 1, other_schema, full, duplicate, earlier, redirected, disbanded };
  /// The decision that the followers of this peer wait for.
  struct Outcome {
    std::optional<Group> group;
    PeerId better = {};  ///< without a group: who leads instead
    bool decided = false;
  };
  struct Answer {
    std::optional<Group> group = {};
    std::optional<PeerId> redirect = {};
  };
  using Lock = std::unique_lock<std::mutex>;
  void on_join(const Message& message, Channel& channel);
  std::optional<Refusal> refusal_of(const PeerRecord& asking) const;
  void refuse(Channel& channel, Refusal why, const PeerId& redirect) const;
  std::optional<PeerRecord> earlier_peer() const;
  std::optional<Group> lead_or_follow(Lock& lock, Deadline deadline, const std::function<void()>& while_waiting);
  bool everybody_has_joined() const;
  bool is_full() const { return followers_.size() + 1 >= options_.most_members; }
  Group close_group();
  void disband(const PeerId& better);
  Answer ask(const PeerRecord& leader, Deadline own_deadline) const;
  Group read_group(const Message& message) const;

  PeerTable& table_;
  Gossip& gossip_;
  const Stop& stopping_;
  Digest key_;
  Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Search own_ = {};                   ///< without a purpose: this peer looks for no group
  std::optional<PeerId> asked_ = {};  ///< the peer that is asked to lead, or that leads
  std::map<PeerId, Member> followers_;
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  std::map<PeerId, Clock::time_point> avoided_;  ///< peers that did not lead, and until when they are not asked again
};

}  // namespace runner::swarm
