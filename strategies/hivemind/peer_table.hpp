// The peers that this peer knows, with the time for which each record is valid. All threads of a peer use it.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "strategies/hivemind/peer.hpp"

namespace runner::swarm {

class PeerTable {
 public:
  struct Limits {
    size_t peers = 256;             ///< further ones are not stored
    Milliseconds lifetime{20'000};  ///< of the own record after each refresh; longer ones of others are cut
    Milliseconds first_pause{500}, longest_pause{30'000};  ///< after failed connections to a peer; doubles each time
  };
  PeerTable(PeerRecord own, Limits limits);

  PeerRecord own() const;
  /// Changes the own record. Others get it with the next gossip.
  void change_own(const std::function<void(PeerRecord&)>& change);
  /// Gives the own record a place, unless it has one: `now` (milliseconds since 1970), or one more than the largest known place if that is
  /// later. So the order of peers that know each other does not depend on their clocks.
  void take_place(uint64_t now);
  /// Makes the own record valid for another lifetime.
  void refresh_own();
  /// Takes a record from another peer, if it is newer than the known one. A record with the own id is ignored.
  void merge(PeerRecord record);
  /// Peers whose records are valid, by id.
  std::vector<PeerRecord> valid() const;
  /// Peers whose records are valid, without those to which the last connection failed, by id.
  std::vector<PeerRecord> live() const;
  /// Peers whose records are valid. Those to which connections failed are in a pause, which becomes longer with each failure, and then are
  /// listed again.
  std::vector<PeerRecord> to_contact() const;
  /// All valid records, the own one first, and those of peers that have left, with the times that remain: what gossip sends. Of more
  /// than `most`, some at random, so that all are sent in time.
  std::vector<PeerRecord> to_send(size_t most) const;
  std::optional<PeerRecord> find(const PeerId& id) const;
  /// A connection to the peer has failed, or has worked.
  void failed(const PeerId& id);
  void worked(const PeerId& id);

 private:
  struct Entry {
    PeerRecord record;
    Clock::time_point until;  ///< the record is valid
    Clock::time_point paused = {};
    int failures = 0;
  };
  template <typename Condition>
  std::vector<PeerRecord> select(const Condition& condition) const;
  void forget_expired();

  Limits limits_;
  mutable std::mutex mutex_;
  PeerRecord own_;
  std::map<PeerId, Entry> entries_;
};

}  // namespace runner::swarm
