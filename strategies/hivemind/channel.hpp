// A connection that carries authenticated messages.
//
// Both ends send 4 fixed bytes and a random nonce. The keys of the two directions follow from the swarm's key and both nonces, so a
// message of another connection is not authentic here. A message is: length (4 bytes), type (1), payload, and the first 16 bytes of
// HMAC-SHA-256 over its number on this connection, length, type and payload. So a message that is repeated, left out or moved is
// not authentic either. Payloads are not encrypted.
#pragma once
#include "runner/base/sha256.hpp"
#include "strategies/hivemind/socket.hpp"

namespace runner::swarm {

enum class MessageType : uint8_t {
  gossip = 1,    ///< records of peers; answered with records
  join = 2,      ///< a peer asks another one to lead its group
  accepted = 3,  ///< milliseconds until the group begins
  rejected = 4,  ///< the reason, and perhaps another leader
  begin = 5,     ///< the members of the group
  reduce = 6,    ///< a member begins to send its values of a part
  values = 7,    ///< of one piece of the part
  average = 8,   ///< the answer: the average of the piece, or the difference to it
  want_state = 9,
  state = 10,        ///< epoch, scalars, and the names and sizes of tensors
  state_bytes = 11,  ///< the bytes of tensors, in order
};

constexpr uint8_t type_number(MessageType type) { return static_cast<uint8_t>(type); }

struct Message {
  MessageType type{};
  Bytes payload = {};
  ByteReader reader() const { return ByteReader(payload); }
};

/// Bytes of a payload: of the first message of a peer that has connected, which is not known to be one yet, of other messages that ask for
/// something (Server), and of all others. The buffer of a payload grows with the bytes that arrive, not with those that are claimed.
inline constexpr size_t first_payload_limit = 128 << 10, request_payload_limit = 1 << 20, payload_limit = 4 << 20;

/// The key of a swarm: of a shared secret and of the name of the run.
Digest swarm_key(const std::string& secret, const std::string& run_id);

class Channel {
 public:
  /// Connects and exchanges nonces. Throws ConnectionError or ProtocolError.
  static Channel connect(const Endpoint& to, const Digest& key, Deadline deadline, const Stop& stop);
  /// The other end of connect().
  static Channel accept(Socket socket, const Digest& key, Deadline deadline);

  void send(MessageType type, std::span<const uint8_t> payload, Deadline deadline);
  /// Throws ProtocolError if the payload has more than `most` bytes, or the message is not authentic.
  Message receive(Deadline deadline, size_t most = payload_limit);
  /// Receives a message of `type`. Throws as the other receive(), and ProtocolError if the message is of another type.
  Message receive(MessageType type, Deadline deadline, size_t most = payload_limit);
  Message ask(MessageType type, std::span<const uint8_t> payload, MessageType answer, Deadline deadline) {
    send(type, payload, deadline);
    return receive(answer, deadline);
  }
  /// Whether the other end has sent an authentic message.
  bool is_authentic() const { return received_ > 0; }
  std::string peer_address() const { return socket_.peer_address(); }
  bool closed_by_peer() const { return socket_.closed_by_peer(); }

 private:
  Channel(Socket socket, const Hmac& out, const Hmac& in, bool accepted)
      : socket_(std::move(socket)), out_(out), in_(in), accepted_(accepted) {}
  Bytes read_payload(size_t size, Deadline deadline);
  static Digest code_of(Hmac& hmac, uint64_t number, std::span<const uint8_t> head, std::span<const uint8_t> payload);

  Socket socket_;
  Hmac out_, in_;
  bool accepted_;  ///< the other end has connected
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace runner::swarm
