// Several `runner` processes that form one run, as on several nodes or under a launcher.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/support/command.hpp"

namespace runner::testing {

/// A port of 127.0.0.1 that was free when it was checked.
inline int free_port() {
  int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address);
  socklen_t size = sizeof address;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(listener);
  return ntohs(address.sin_port);
}

/// Processes started as nodes on 127.0.0.1, node 0 first. Their output goes to node-N.out and node-N.err.
class Nodes {
 public:
  Nodes(const Workplace& place, int count, std::vector<std::string> arguments,
        const std::vector<std::string>& overrides = {})
      : place_(place), count_(count) {
    for (const auto& text : overrides) arguments.insert(arguments.end(), {"--set", text});
    arguments.insert(arguments.end(), {"--set", "devices.num_nodes=" + std::to_string(count), "--json", "--master-addr",
                                       "127.0.0.1", "--master-port", std::to_string(free_port()), "--node-rank"});
    for (int node = 0; node < count; ++node) {
      arguments.push_back(std::to_string(node));
      pids_.push_back(place.start(arguments, name(node)));
      arguments.pop_back();
    }
  }
  pid_t pid(int node) const { return pids_.at(static_cast<size_t>(node)); }
  /// What node 0 has written to stderr so far.
  std::string said() const { return slurp(place_.path() / (name(0) + ".err")); }
  std::vector<CommandResult> finish() const {
    std::vector<CommandResult> results;
    for (int node = 0; node < count_; ++node) results.push_back(place_.finish(pid(node), name(node)));
    return results;
  }

 private:
  static std::string name(int node) { return "node-" + std::to_string(node); }
  const Workplace& place_;
  int count_;
  std::vector<pid_t> pids_;
};

}  // namespace runner::testing
