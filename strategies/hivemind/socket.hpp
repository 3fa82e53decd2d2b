// TCP connections whose every read and write has a deadline.
#pragma once
#include <atomic>
#include <chrono>
#include <optional>

#include "runner/base/descriptor.hpp"
#include "strategies/hivemind/bytes.hpp"

namespace runner::swarm {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Milliseconds = std::chrono::milliseconds;
/// Set when this process leaves the swarm: all waiting ends with ConnectionError.
using Stop = std::atomic<bool>;

struct Endpoint {
  std::string host = "";
  uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};
/// "host:port"; of an IPv6 address "[address]:port".
std::string to_text(const Endpoint& endpoint);
/// The reverse; nullopt if the text is none. Ports are 1 to 65535.
std::optional<Endpoint> parse_endpoint(const std::string& text);

class Socket {
 public:
  Socket() = default;
  /// `fd` becomes non-blocking. `stop` must outlive the socket.
  Socket(Descriptor fd, const Stop& stop);
  /// Fills the span. Throws ConnectionError.
  void read(std::span<uint8_t> bytes, Deadline deadline);
  /// Reads what has arrived, without waiting. Returns the number of bytes, which may be 0.
  size_t read_some(std::span<uint8_t> bytes);
  void write(std::span<const uint8_t> bytes, Deadline deadline);
  /// Whether the other end has closed the connection.
  bool closed_by_peer() const;
  /// The address of the other end, without its port.
  std::string peer_address() const;
  void close() { fd_.close(); }

 private:
  void wait(short events, Deadline deadline) const;

  Descriptor fd_;
  const Stop* stop_ = nullptr;
};

/// Throws ConnectionError. The deadline does not bound the search for the address of a host name: the system's resolver has its own times,
/// often 5 to 30 s. Addresses need no search.
Socket connect_to(const Endpoint& endpoint, Deadline deadline, const Stop& stop);

/// Accepts connections on a port. Throws Error(environment) if the port cannot be used.
class Listener {
 public:
  /// port 0: a free one.
  Listener(const std::string& host, uint16_t port, const Stop& stop);
  uint16_t port() const { return port_; }
  /// nullopt if nobody connects in this time.
  std::optional<Socket> accept(Milliseconds patience);

 private:
  Descriptor fd_;
  uint16_t port_ = 0;
  const Stop& stop_;
};

}  // namespace runner::swarm
