// Trainings of 2 to 8 processes on this machine that are killed, paused, slow, late, or behind a bad network: those that live reach the
// target loss, and nothing hangs.
#include <catch2/catch_test_macros.hpp>

#include "tests/hivemind/flaky_proxy.hpp"
#include "tests/hivemind/toy_process.hpp"

using runner::testing::FlakyProxy;
using runner::testing::ToyProcess;
using runner::testing::wait_until;

namespace {

constexpr double target_loss = 0.05;  // of about 1.5 at the start
constexpr double limit = 45;          // seconds

std::string join(ToyProcess& peer) { return "join=127.0.0.1:" + peer.port(); }

/// Peers that know the one before, so that only gossip tells them of the others.
std::vector<ToyProcess> start_chain(int count, const std::vector<std::string>& arguments = {}) {
  std::vector<ToyProcess> peers;
  for (int i = 0; i < count; ++i) {
    auto own = arguments;
    own.push_back("seed=" + std::to_string(i));
    if (i > 0) own.push_back(join(peers.back()));
    peers.emplace_back(own);
  }
  return peers;
}

void check_target(ToyProcess& peer) {
  CHECK(peer.ends_within(limit) == 0);
  REQUIRE(peer.value("loss"));
  CHECK(*peer.value("loss") < target_loss);
}

}  // namespace

TEST_CASE("two and eight peers reach the target loss, also if only gossip tells them of each other", "[e2e]") {
  for (const int count : {2, 8}) {
    INFO(count << " peers");
    auto peers = start_chain(count);
    for (auto& peer : peers) check_target(peer);
  }
}

TEST_CASE("peers with 8-bit messages reach the target loss", "[e2e]") {
  for (const char* kind : {"uniform_8bit", "blockwise_8bit"}) {
    auto peers = start_chain(3, {std::string("compression=") + kind});
    for (auto& peer : peers) check_target(peer);
  }
}

TEST_CASE("peers that are killed, the first one too, do not stop the others", "[e2e]") {
  auto peers = start_chain(4, {"epochs=30"});
  REQUIRE(peers[3].reaches("epoch", 3));
  peers[0].signal(SIGKILL);
  CHECK(peers[0].ends_within(5) == 128 + SIGKILL);
  REQUIRE(peers[1].reaches("epoch", *peers[1].value("epoch") + 3));
  peers[2].signal(SIGKILL);
  ToyProcess late({join(peers[3]), "epochs=30", "seed=9"});  // the first contact of the others is gone
  CHECK(late.reaches("loaded", 3));
  check_target(peers[1]);
  check_target(peers[3]);
  check_target(late);
}

TEST_CASE("a peer that is paused does not stop the others, and catches up", "[e2e]") {
  auto peers = start_chain(3, {"epochs=40", "seconds=60"});
  REQUIRE(peers[2].reaches("epoch", 3));
  peers[1].signal(SIGSTOP);
  REQUIRE(peers[0].reaches("epoch", *peers[0].value("epoch") + 6));
  peers[1].signal(SIGCONT);
  CHECK(peers[1].reaches("loaded", 5));
  for (auto& peer : peers) check_target(peer);
}

TEST_CASE("a slow peer takes part, and a late one begins with the state of the others", "[e2e]") {
  auto peers = start_chain(2, {"epochs=30"});
  peers.emplace_back(std::vector<std::string>{join(peers[0]), "step_ms=150", "epochs=30", "seed=7"});
  REQUIRE(peers[0].reaches("epoch", 8));
  peers.emplace_back(std::vector<std::string>{join(peers[1]), "epochs=30", "seed=8"});
  CHECK(peers[3].reaches("loaded", 1));
  for (auto& peer : peers) check_target(peer);
}

TEST_CASE("a peer behind a network that cuts connections does not stop the others", "[e2e]") {
  ToyProcess first({"epochs=25", "seed=1"});
  ToyProcess second({join(first), "epochs=25", "seed=2"});
  const auto bad = [](int number) {
    return FlakyProxy::Fault{.cut_after = number % 3 == 0 ? 2000 + 977 * (number % 7) : -1,
                             .delay = runner::swarm::Milliseconds(number % 4)};
  };
  // Its port must be known to the proxy before it starts, and that of the proxy to it.
  const auto free_port = [] {
    const runner::swarm::Stop stop = false;
    return runner::swarm::Listener("127.0.0.1", 0, stop).port();
  }();
  FlakyProxy proxy(free_port, bad);
  ToyProcess third({join(second), "epochs=25", "seed=3", "port=" + std::to_string(free_port),
                    "announce=127.0.0.1:" + std::to_string(proxy.port())});
  for (auto* peer : {&first, &second, &third}) check_target(*peer);
  CHECK(proxy.connections() > 10);
}
