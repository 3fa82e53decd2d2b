// A TCP connection between two supervisors that transfers JSON objects, one per line, authenticated if both have a secret.
#pragma once
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/base/descriptor.hpp"
#include "runner/launch/lines.hpp"

namespace runner {

/// Sending and receiving do not throw. A broken connection counts as closed once all received messages have been read. The
/// failure of the other host is detected within half a minute.
class MessageSocket {
 public:
  MessageSocket() = default;
  /// A connection that was accepted. With a `secret`, it is closed when a line is not authentic (lines.hpp).
  explicit MessageSocket(Descriptor connection, const std::string& secret = "")
      : MessageSocket(std::move(connection), secret, /*accepted=*/true) {}
  /// Tries each address of the host once, for at most `seconds`. If all fail, the result is not open and `problem` is the
  /// reason. Throws Error(environment) if the host name does not exist.
  static MessageSocket connect(const std::string& address, int port, double seconds, std::string& problem,
                               const std::string& secret = "");

  bool is_open() const { return connection_.is_open() || !received_.empty(); }
  int fd() const { return connection_.get(); }
  void close();
  void send(const nlohmann::json& message);
  /// The next object that has arrived; does not wait. Drops lines that are not JSON objects. It reads only if no object is left, and at
  /// most 1 MiB.
  std::optional<nlohmann::json> receive();
  /// Bytes of the line of the last object.
  size_t received_bytes() const { return received_bytes_; }

  std::string peer_address() const;  ///< numeric
  std::string own_address() const;   ///< numeric: this host's address on the connection

 private:
  MessageSocket(Descriptor connection, const std::string& secret, bool accepted);
  void read();
  void take(std::string_view line);
  void write(std::string_view text);

  Descriptor connection_;
  LineReader lines_;
  std::optional<LineSeal> seal_;
  std::vector<std::string> unsealed_;  ///< lines to be sent when the other end's greeting has come
  struct Received {
    nlohmann::json message;
    size_t bytes;
  };
  std::deque<Received> received_;
  size_t received_bytes_ = 0;
};

}  // namespace runner
