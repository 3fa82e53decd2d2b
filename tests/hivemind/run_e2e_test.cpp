// Peers as `runner run`: one is killed, and the others finish their trainings.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const char* const secret = "a secret for the peers of a test";

/// A peer in a folder of its own, so that `last` is its run.
struct Peer {
  Workplace place;
  pid_t pid = 0;

  void start(int number, const std::vector<std::string>& more, const std::string& time) {
    write_tiny_recipe(place);
    std::vector<std::string> arguments = {"run", "tiny.toml"};
    std::vector<std::string> settings = {"strategy.name=hivemind",       "strategy.target_batch_size=48",
                                         "strategy.averaging_timeout=8", "strategy.matchmaking_time=2",
                                         "strategy.request_timeout=1",   "strategy.verbose=true",
                                         "devices.cpu_processes=1",      "optimizer.lr=0.01",
                                         "train.global_batch_size=4",    "run.seed=" + std::to_string(number),
                                         "train.max_steps=1000000",      "train.max_time=" + time};
    settings.insert(settings.end(), more.begin(), more.end());
    for (const auto& setting : settings) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    pid = place.start(arguments, "command", {{"RUNNER_SWARM_SECRET", secret}});
  }
  std::string output() const { return slurp(place.path() / "command.out") + slurp(place.path() / "command.err"); }
  bool says(const std::string& text, double seconds = 60) const {
    return wait_until([&] { return output().find(text) != std::string::npos; }, seconds);
  }
  std::string port() const {
    const std::string start = "127.0.0.1:";
    const auto text = output();
    const size_t at = text.find(start) + start.size();
    return text.substr(at, text.find_first_not_of("0123456789", at) - at);
  }
};

}  // namespace

TEST_CASE("a peer that is killed does not stop the others, whose losses fall", "[e2e]") {
  std::vector<Peer> peers(3);
  peers[0].start(1, {}, "20s");
  REQUIRE(peers[0].says("listens; others join with"));
  const std::string contact = "strategy.initial_peers=[\"127.0.0.1:" + peers[0].port() + "\"]";
  peers[1].start(2, {contact}, "16s");
  peers[2].start(3, {contact}, "10m");
  for (const auto& peer : {std::cref(peers[1]), std::cref(peers[2])})
    CHECK(peer.get().says("loaded the state of another peer", 15));
  CHECK(peers[2].says("gradients of 3 peers", 15));
  for (const pid_t worker : children_of(peers[2].pid)) ::kill(worker, SIGKILL);
  ::kill(peers[2].pid, SIGKILL);
  peers[2].place.finish(peers[2].pid);
  for (size_t i = 0; i < 2; ++i) {
    const auto result = peers[i].place.finish(peers[i].pid);
    INFO(result.out << result.err);
    CHECK(result.code == 0);
    CHECK_THAT(result.out + result.err, !ContainsSubstring(secret));
    const auto values = losses(peers[i].place);
    CHECK(values.back() < 0.8 * 4.0);
    CHECK(values.back() < values.front());
  }
}
