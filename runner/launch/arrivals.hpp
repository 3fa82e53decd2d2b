// The leader's listening socket: accepts the connections of other supervisors and reads their hellos (members.hpp).
#pragma once
#include <poll.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/launch/message_socket.hpp"

namespace runner {

/// A supervisor that has connected and said who it is.
struct Arrival {
  MessageSocket socket;
  nlohmann::json hello;  ///< its first message, which need not be a hello
};

/// Anybody may connect to the port, so connections that have not said a hello are bounded: a hello must come within 5 s, there are at most
/// `most_strangers` of them, and fewer if no descriptors are left. Beyond that, the oldest one of the address that has most of them is
/// closed. A supervisor that is closed this way connects again.
class Arrivals {
 public:
  /// The behaviour of take() if this process has no free descriptors or memory for another connection, and no stranger that it can close.
  enum class WhenFull {
    fail,  ///< throws, because otherwise the other supervisors would be reported as missing
    warn   ///< warns once, while a run trains
  };

  static constexpr size_t strangers_of_run = 64;  ///< in addition to the supervisors that are expected

  /// Listens on `port` of this host. `secret`: see MessageSocket. Throws Error(environment) if the port is taken.
  Arrivals(const std::string& address, int port, std::string secret, WhenFull when_full = WhenFull::fail,
           size_t most_strangers = strangers_of_run);
  /// Adds what has to be watched for the next arrival.
  void watch(std::vector<pollfd>& watched) const;
  /// The supervisors whose first message has come since the last call; does not wait. Of very many that connect at once, the last ones are
  /// accepted by the next call. Throws Error(environment) as WhenFull says.
  std::vector<Arrival> take();

 private:
  struct Stranger {
    MessageSocket socket;
    std::string address;
    double since;  ///< steady seconds
  };
  Descriptor accept();
  bool accept_some();
  void hear(std::vector<Arrival>& arrivals);
  void close_one();

  Descriptor listener_;
  std::string secret_;
  WhenFull when_full_;
  size_t most_strangers_;
  bool full_ = false, warned_ = false;  ///< full_: the last connection could not be accepted
  std::deque<Stranger> strangers_;      ///< connected, but have not sent a message yet; the oldest first
};

}  // namespace runner
