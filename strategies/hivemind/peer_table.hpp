// The records of peers: what each tells the others about itself, and the table of those that a peer knows.
#pragma once
#include <array>
#include <compare>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "strategies/hivemind/socket.hpp"

namespace runner::swarm {

/// Random, new for each start of a peer.
struct PeerId {
  std::array<uint8_t, 16> bytes = {};
  auto operator<=>(const PeerId&) const = default;
};
PeerId random_peer_id();
/// The first 8 hexadecimal digits.
std::string to_text(const PeerId& id);

/// A peer that looks for a group. The one with the smallest (expiry, id) leads.
struct Search {
  std::string purpose = "";  ///< "gradients 12"; empty: it does not look for one
  uint64_t expiry =
      0;  ///< when it would begin as the leader: milliseconds since 1970 on its own clock. Only their order counts
};

struct PeerRecord {
  PeerId id = {};
  Endpoint at;          ///< without a host: the address from which the record came
  uint64_t schema = 0;  ///< a hash of what peers must have alike to train together
  int64_t target = 1;   ///< samples of an update (SwarmOptions::target_samples)
  /// The peer's place in the order of peers: milliseconds since 1970, or later than all places that it knew. 0: it has none yet.
  uint64_t started = 0;
  uint64_t sequence = 0;      ///< of two records of a peer, the one with the larger number is newer
  uint32_t lifetime = 0;      ///< milliseconds for which the record is valid; 0: the peer has left
  bool participates = false;  ///< it trains; false: it still loads the state
  int64_t epoch = 0;          ///< updates made
  int64_t samples = 0;        ///< of this epoch so far
  double rate = 0;            ///< samples per second; 0: not known yet
  Search search = {};
};

/// Largest sizes of texts, in bytes.
inline constexpr size_t host_limit = 255, purpose_limit = 64;
void write(ByteWriter& out, const PeerRecord& record);
/// Throws ProtocolError if a value cannot be one of a record.
PeerRecord read_record(ByteReader& in);
/// The record came from the address `from`. A loopback address of another machine means that machine, and so does, in its own record, none.
void complete_host(Endpoint& at, const std::string& from, bool own_record);
void write(ByteWriter& out, const PeerId& id);
PeerId read_id(ByteReader& in);

/// The peers that this peer knows, with the time for which each record is valid. All threads of a peer use it.
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
