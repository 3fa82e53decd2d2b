// A TCP connection between two supervisors that carries JSON objects, one a line.
#pragma once
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/base/descriptor.hpp"
#include "runner/launch/lines.hpp"

namespace runner {

/// Neither sending nor receiving throws: a connection that broke, by whatever cause, is closed once all that came over
/// it was received. A host that vanished without a word is noticed within half a minute.
class MessageSocket {
 public:
  MessageSocket() = default;
  explicit MessageSocket(Descriptor connection);
  /// One try, at most `seconds` long; is_open() tells whether it worked, and `problem` why not. Throws
  /// Error(environment) if there is no host of that name.
  static MessageSocket connect(const std::string& address, int port, double seconds, std::string& problem);

  bool is_open() const { return connection_.is_open() || !received_.empty(); }
  int fd() const { return connection_.get(); }
  void close();
  void send(const nlohmann::json& message);
  /// The next object that is here; does not wait. Other lines are dropped.
  std::optional<nlohmann::json> receive();

  std::string peer_address() const;  ///< numeric
  std::string own_address() const;   ///< numeric: the one that the peer reaches

 private:
  void read();

  Descriptor connection_;
  LineReader lines_;
  std::deque<nlohmann::json> received_;
};

/// 127.0.0.0/8 or ::1, written as numbers.
bool is_loopback(const std::string& address);

}  // namespace runner
