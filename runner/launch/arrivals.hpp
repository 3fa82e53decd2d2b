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

class Arrivals {
 public:
  /// What take() does if this process has no free descriptors or memory for another connection.
  enum class WhenFull {
    fail,  ///< throws, because otherwise the other supervisors would be reported as missing
    warn,  ///< while a run trains: warns, and keeps only the newest 64 of those that have not said a hello
  };

  /// Listens on `port` of this host. `secret`: see MessageSocket. Throws Error(environment) if the port is taken.
  Arrivals(const std::string& address, int port, std::string secret, WhenFull when_full = WhenFull::fail);
  /// Adds what has to be watched for the next arrival.
  void watch(std::vector<pollfd>& watched) const;
  /// The supervisors whose first message has come since the last call; does not wait. Throws Error(environment) as WhenFull says.
  std::vector<Arrival> take();

 private:
  struct Stranger {
    MessageSocket socket;
    double since;  ///< steady seconds
  };
  Descriptor accept();
  void close_oldest();

  Descriptor listener_;
  std::string secret_;
  WhenFull when_full_;
  bool full_ = false, warned_ = false;  ///< full_: the last connection could not be accepted
  std::deque<Stranger> strangers_;      ///< connected, but have not sent a message yet
};

}  // namespace runner
