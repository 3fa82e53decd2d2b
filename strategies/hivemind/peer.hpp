// The record of a peer: what it tells the others about itself.
#pragma once
#include <array>
#include <compare>

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

}  // namespace runner::swarm
