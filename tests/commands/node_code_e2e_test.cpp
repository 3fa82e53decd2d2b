// A node without a secret, whose node 0 is a stranger: it runs no code that its own recipe does not name.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/nodes.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Stands for node 0: tells the node that connects to start workers for a run's folder.
class PretendedLeader {
 public:
  PretendedLeader() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_, 1) == 0);
  }
  ~PretendedLeader() {
    ::close(connection_);
    ::close(listener_);
  }
  std::string port() const { return std::to_string(port_); }

  /// What the node answers, until it says that it cannot start the workers, or that one of them has ended.
  std::string answer(const fs::path& run_dir) {
    connection_ = ::accept(listener_, nullptr, nullptr);
    read_until("\n");  // its hello
    say({{"say", "welcome"}});
    say({{"say", "start"},
         {"arguments", {"--run-dir", run_dir.string(), "--cache-dir", (run_dir / "cache").string(), "--attempt", "1"}},
         {"environment", nlohmann::json::object()},
         {"log_dir", (run_dir / "logs").string()},
         {"proof", "1"},
         {"store_port", 1},
         {"node_address", "127.0.0.1"}});
    return read_until("\"exit\"");
  }

 private:
  void say(const nlohmann::json& message) const {
    const std::string line = message.dump() + "\n";
    REQUIRE(::write(connection_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  }
  std::string read_until(const std::string& end) const {
    std::string text;
    char byte = 0;
    while (text.find(end) == std::string::npos && ::read(connection_, &byte, 1) == 1) text += byte;
    return text;
  }

  int port_ = free_port(), listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), connection_ = -1;
};

}  // namespace

TEST_CASE("a node does not run hooks that only the folder of node 0's run names", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("theirs.lua", "os.execute('touch ran')\nreturn {}\n");
  const fs::path run_dir = place.path() / "run";
  fs::create_directories(run_dir / "logs");
  place.write("run/logs/.shared", "1");
  place.write(
      "run/resolved.toml",
      place.run({"print", "tiny.toml", "--set", "hooks.files=[\"theirs.lua\"]", "--set", "hooks.trusted=true"}).out);
  fs::remove(place.path() / "ran");  // printing loads the hook
  PretendedLeader leader;
  const pid_t node =
      place.start({"run", "tiny.toml", "--set", "devices.num_nodes=2", "--set", "devices.cpu_processes=1",
                   "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", leader.port()});
  const std::string said = leader.answer(run_dir);
  CHECK_THAT(said, ContainsSubstring("\"failed\"") &&
                       ContainsSubstring("names other code than the recipe of this node") &&
                       ContainsSubstring("hooks.files is ") && ContainsSubstring("hooks.trusted is true there"));
  CHECK_FALSE(fs::exists(place.path() / "ran"));
  ::kill(node, SIGKILL);
  place.finish(node);
}
