// Addresses that sent messages which no peer sends. Each further offence doubles the time for which connections are refused.
//
// An address that peers have too (`shared`) is not banned, because that would shut them out. It is refused only until a second is over in
// which it has sent very many such messages.
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "strategies/hivemind/socket.hpp"

namespace runner::swarm {

class BanList {
 public:
  struct Limits {
    int offences_before =
        3;  ///< so many do not lead to a ban, because a peer may have been started with a wrong secret
    Milliseconds first{1000}, longest{600'000};
    size_t addresses = 4096;      ///< of more, those whose bans end first are forgotten
    int shared_per_second = 100;  ///< offences of a shared address
  };
  explicit BanList(Limits limits) : limits_(limits) {}
  BanList() : BanList(Limits()) {}

  void offend(const std::string& address, Clock::time_point now, bool shared = false);
  /// An authentic message from the address: its offences count no more, but a ban goes on.
  void forgive(const std::string& address);
  bool is_banned(const std::string& address, Clock::time_point now, bool shared = false) const;
  size_t size() const;

 private:
  struct Entry {
    int offences = 0;
    Clock::time_point until = {};
    int in_second = 0;
    Clock::time_point second = {};        ///< when the counted second began
    Clock::time_point shared_until = {};  ///< `until` of a shared address
  };
  Limits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace runner::swarm
