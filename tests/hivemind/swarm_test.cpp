// Peers as objects of one process: groups, the state for late joiners, and the equality of a swarm with one trainer.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "strategies/hivemind/collector.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::swarm;
using runner::bytes_of_text;
using runner::Digest;
using Catch::Matchers::ContainsSubstring;
using runner::testing::wait_until;

namespace {

SwarmOptions quick_options(const std::vector<Endpoint>& initial = {}) {
  return {.secret = "a secret of the test",
          .initial_peers = initial,
          .schema = 1,
          .target_samples = 16,
          .estimates = false,
          .matchmaking_time = Milliseconds(2000),
          .averaging_timeout = Milliseconds(5000),
          .request_timeout = Milliseconds(1000),
          .sender_timeout = Milliseconds(1000),
          .load_state_timeout = Milliseconds(2000),
          .gossip_interval = Milliseconds(100),
          .record_lifetime = Milliseconds(3000)};
}

Endpoint at(const Swarm& swarm) { return {"127.0.0.1", swarm.port()}; }

/// Swarms that all know each other and take part.
std::vector<std::unique_ptr<Swarm>> make_swarms(size_t count, SwarmOptions options = quick_options()) {
  std::vector<std::unique_ptr<Swarm>> swarms;
  for (size_t i = 0; i < count; ++i) {
    options.initial_peers.clear();
    if (i > 0) options.initial_peers = {at(*swarms.back())};
    swarms.push_back(std::make_unique<Swarm>(options));
    swarms.back()->participate();
  }
  const bool met = wait_until(
      [&] {
        return std::ranges::all_of(swarms,
                                   [&](const auto& one) { return one->progress().peers == static_cast<int>(count); });
      },
      10);
  if (!met) throw std::runtime_error("the peers do not find each other");
  return swarms;
}

void in_threads(size_t count, const std::function<void(size_t)>& work) {
  std::vector<std::thread> threads;
  std::vector<std::string> errors(count);
  for (size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        work(i);
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (!error.empty()) throw std::runtime_error(error);
}

}  // namespace

TEST_CASE("all peers that look for the same make one group, at different times and again and again") {
  const size_t count = 5;
  auto swarms = make_swarms(count);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::vector<float>> values(count);
    in_threads(count, [&](size_t i) {
      std::this_thread::sleep_for(Milliseconds(20 * ((i + static_cast<size_t>(round)) % count)));
      values[i].assign(10, static_cast<float>(i));
      const auto result = swarms[i]->average("round " + std::to_string(round), values[i], 1, Compression::none);
      RANK_CHECK(result.members == count);
      RANK_CHECK(result.failed.empty() && result.excluded.empty());
    });
    for (const auto& one : values) CHECK(one == std::vector<float>(10, 2.0f));
  }
}

TEST_CASE("peers with another purpose or other tensors make no group, and a peer alone does not wait") {
  auto swarms = make_swarms(2);
  auto options = quick_options({at(*swarms[0])});
  options.schema = 2;
  Swarm other(options);
  other.participate();
  std::vector<float> values(3, 1.0f);
  const auto begun = Clock::now();
  CHECK(other.average("x", values, 1, Compression::none).members == 1);
  CHECK(Clock::now() - begun < Milliseconds(500));
  in_threads(2, [&](size_t i) {
    std::vector<float> own(3, static_cast<float>(i));
    RANK_CHECK(swarms[i]->average("purpose " + std::to_string(i), own, 1, Compression::none).members == 1);
    RANK_CHECK(own[0] == static_cast<float>(i));
  });
}

TEST_CASE("a late joiner gets the state with equal bits, from the next peer if one does not send it") {
  auto swarms = make_swarms(2);
  State state{.epoch = 3, .scalars = "{\"steps\":3}", .tensors = {{"a", Bytes(3 << 20)}, {"b", {}}, {"c", {1, 2, 3}}}};
  for (size_t i = 0; i < state.tensors[0].bytes.size(); ++i)
    state.tensors[0].bytes[i] = static_cast<uint8_t>(i * i >> 7);
  // The first peer is ahead, but never makes its state. The second one does.
  swarms[0]->report(5, 0);
  swarms[1]->report(3, 0);
  swarms[1]->serve_state_with([&] { return state; });
  std::atomic<bool> loaded = false;
  std::thread serving([&] {
    while (!loaded) {
      swarms[1]->serve_state();
      std::this_thread::sleep_for(Milliseconds(5));
    }
  });
  Swarm late(quick_options({at(*swarms[1])}));
  std::optional<State> got;
  std::string why;
  const auto knows_the_first = [&] {
    const auto peers = late.peers();
    return peers.size() == 2 && std::ranges::any_of(peers, [](const auto& peer) { return peer.epoch == 5; });
  };
  CHECK(wait_until(knows_the_first, 5));
  got = late.load_state(0, {{"a", 3 << 20}, {"b", 0}, {"c", 3}}, why);
  CHECK_THAT(why, ContainsSubstring("no answer in time") || ContainsSubstring("closed"));
  REQUIRE(got);
  CHECK(got->epoch == 3);
  CHECK(got->scalars == state.scalars);
  for (size_t i = 0; i < 3; ++i) CHECK(got->tensors[i].bytes == state.tensors[i].bytes);
  CHECK_FALSE(late.load_state(0, {{"a", 5}, {"b", 0}, {"c", 3}}, why));
  loaded = true;
  serving.join();
}

TEST_CASE("of peers that start together, exactly one keeps its state") {
  auto swarms = make_swarms(2);
  std::vector<std::optional<State>> got(2);
  for (size_t i = 0; i < 2; ++i) {
    swarms[i]->serve_state_with([i] { return State{.tensors = {{"id", {static_cast<uint8_t>(i)}}}}; });
  }
  for (size_t i = 0; i < 2; ++i) {
    std::atomic<bool> done = false;
    std::thread serving([&] {
      while (!done) {
        swarms[1 - i]->serve_state();
        std::this_thread::sleep_for(Milliseconds(5));
      }
    });
    std::string why;
    got[i] = swarms[i]->load_state(0, {{"id", 1}}, why);
    done = true;
    serving.join();
  }
  REQUIRE(got[0].has_value() != got[1].has_value());
  const size_t loaded = got[0] ? 0 : 1;
  CHECK(got[loaded]->tensors[0].bytes == Bytes{static_cast<uint8_t>(1 - loaded)});
}

TEST_CASE("a leader begins when its group is full, though others could join") {
  struct Node {
    Digest key = swarm_key("a secret of the test", "run");
    Server server{"127.0.0.1", 0, key, {}};
    PeerTable table;
    Gossip gossip{table, server, key, {}};
    Matchmaking matchmaking{table, gossip, server, key, {.most_members = 2}};
    explicit Node(uint8_t number) : table(record_of(number), {}) { server.start(); }
    ~Node() { server.stop(); }
    PeerRecord record_of(uint8_t number) const {
      PeerRecord own{.at = {"127.0.0.1", server.port()}, .participates = true};
      own.id.bytes[0] = number;
      return own;
    }
  };
  Node leader(1), follower(2), idle(3);
  leader.table.merge(idle.table.own());
  const auto begun = Clock::now();
  std::optional<Group> groups[2];
  in_threads(2, [&](size_t i) {
    if (i == 0) {
      groups[0] = leader.matchmaking.find_group("x", begun + Milliseconds(5000));
      return;
    }
    RANK_CHECK(wait_until([&] { return leader.table.own().search.purpose == "x"; }, 3));
    follower.table.merge(leader.table.own());
    groups[1] = follower.matchmaking.find_group("x", begun + Milliseconds(6000));
  });
  CHECK(Clock::now() - begun < Milliseconds(3000));
  for (const auto& group : groups) {
    REQUIRE(group);
    CHECK(group->members.size() == 2);
  }
}

TEST_CASE("of peers that start at the same time with different values, all have those of one, at any number of tries") {
  for (int round = 0; round < 5; ++round) {
    Swarm contact(quick_options());  // knows all, and trains nothing: only gossip tells the others of each other
    const size_t count = 4;
    std::vector<int> values(count);
    std::atomic<size_t> have = 0;
    in_threads(count, [&](size_t i) {
      Swarm swarm(quick_options({at(contact)}));
      values[i] = static_cast<int>(i);
      swarm.serve_state_with([&] { return State{.tensors = {{"id", {static_cast<uint8_t>(values[i])}}}}; });
      swarm.enter();
      if (const auto state = swarm.load_first_state(0, {{"id", 1}})) values[i] = state->tensors[0].bytes[0];
      swarm.participate();
      ++have;
      RANK_CHECK(wait_until(
          [&] {
            swarm.serve_state();
            return have == count;
          },
          10));
    });
    for (const int value : values) CHECK(value == values[0]);
  }
}

TEST_CASE("a peer that cannot load the state of an earlier one says so, and one that has left is not waited for") {
  auto options = quick_options();
  Swarm first(options);
  first.enter();  // it has a place, and no state for others yet
  options.load_state_timeout = Milliseconds(400);
  options.initial_peers = {at(first)};
  Swarm late(options);
  late.enter();
  CHECK_THROWS_WITH(late.load_first_state(0, {{"id", 1}}), ContainsSubstring("0.4 s (strategy.load_state_timeout)") &&
                                                               ContainsSubstring("it has no state for this model yet"));
  CHECK(late.peers().size() == 1);  // it works, and is not counted as failed
  {
    Swarm gone(quick_options({at(first)}));
    gone.enter();
  }
  Swarm third(quick_options());
  third.enter();
  CHECK_FALSE(third.load_first_state(0, {{"id", 1}}));
}

TEST_CASE("the names of a model's tensors are bounded before anything is sent") {
  check_head({{std::string(1000, 'x'), 1}});
  CHECK_THROWS_WITH(check_head({{std::string(2000, 'x'), 1}}), ContainsSubstring("has 2000 bytes, and 1024"));
  CHECK_THROWS_WITH(check_head(std::vector<TensorSize>(5000, {std::string(1000, 'x'), 1})),
                    ContainsSubstring("list of the model's 5000 tensors"));
}

TEST_CASE("a state with many names arrives") {
  auto swarms = make_swarms(2);
  State state;
  std::vector<TensorSize> sizes;
  for (int i = 0; i < 1000; ++i) {
    state.tensors.push_back({.name = std::string(500, 'n') + std::to_string(i), .bytes = {1}});
    sizes.push_back({.name = state.tensors.back().name, .bytes = 1});
  }
  swarms[0]->serve_state_with([&] { return state; });
  std::optional<State> got;
  in_threads(2, [&](size_t i) {
    std::string why;
    if (i == 1) got = swarms[1]->load_state(0, sizes, why);
    if (i == 0) wait_until([&] { return swarms[0]->serve_state(), got.has_value(); }, 3);
  });
  CHECK(got);
}

TEST_CASE("values that are not finite are not sent") {
  auto swarms = make_swarms(2);
  std::vector<float> values{1, NAN};
  const auto begun = Clock::now();
  CHECK(swarms[0]->average("x", values, 1, Compression::uniform_8bit).members == 1);
  CHECK(Clock::now() - begun < Milliseconds(500));
}

TEST_CASE("without waiting, peers with local updates average their states and load none") {
  const size_t count = 2, dim = 4;
  auto options = quick_options();
  options.target_samples = 8;
  auto swarms = make_swarms(count, options);
  std::vector<std::vector<float>> values(count);
  std::atomic<int> loads = 0, averages = 0;
  in_threads(count, [&](size_t i) {
    Collector collector(*swarms[i], dim, {.local_updates = true});
    values[i].assign(dim, static_cast<float>(i));
    for (int step = 0; step < 20; ++step) {
      if (collector.needs_state()) ++loads;
      std::this_thread::sleep_for(Milliseconds(20));
      RANK_CHECK(
          collector.add(std::vector<float>(dim, 0.0f), 4, 4, 0.02));  // no gradient, so only averages change values
      collector.updated();
      if (collector.state_due() && collector.average_state(values[i])) ++averages;
    }
  });
  CHECK(loads == 0);
  CHECK(averages >= 10);
  for (const auto& one : values) CHECK(one == std::vector<float>(dim, 0.5f));
}

TEST_CASE("a collector drops the gradients of an update that was not made") {
  auto swarms = make_swarms(1);
  Collector collector(*swarms[0], 1, {});
  CHECK_FALSE(collector.add(std::vector<float>{100}, 8, 8, 0.01));
  CHECK(collector.add(std::vector<float>{100}, 8, 8, 0.01));
  collector.skipped();
  CHECK(collector.samples() == 0);
  CHECK_FALSE(collector.add(std::vector<float>{1}, 8, 8, 0.01));
  CHECK(collector.add(std::vector<float>{3}, 8, 8, 0.01));
  CHECK(collector.gradients()[0] == 2);
  CHECK(collector.epoch() == 0);
}

TEST_CASE("initial peers that do not answer are an error that names the reason") {
  auto options = quick_options({{"127.0.0.1", 1}});
  options.averaging_timeout = Milliseconds(300);
  CHECK_THROWS_WITH(Swarm(options), ContainsSubstring("none of strategy.initial_peers answers: 127.0.0.1:1: "));
  Swarm first(quick_options());
  options.initial_peers = {at(first)};
  options.secret = "a different secret";
  CHECK_THROWS_WITH(Swarm(options), ContainsSubstring("none of strategy.initial_peers answers"));
  options = quick_options();
  options.averaging_timeout = Milliseconds(300);
  {
    const Stop stop = false;
    options.port = Listener("127.0.0.1", 0, stop).port();
  }
  options.initial_peers = {{"127.0.0.1", options.port}};
  CHECK_THROWS_WITH(Swarm(options), ContainsSubstring("is this peer itself"));
  options = quick_options();
  options.port = first.port();
  CHECK_THROWS_WITH(Swarm(options), ContainsSubstring("cannot listen at"));
}

TEST_CASE("with fixed peers that wait for each other, updates equal those of one trainer with all samples") {
  const size_t count = 3, dim = 50;
  const int updates = 6;
  // Gradient of sample s: values - sample_s. Peer i has `i + 1` samples in each step.
  const auto sample = [](int update, size_t peer, size_t s, size_t k) {
    return std::sin(static_cast<float>(1000 * update + 100 * static_cast<int>(peer) + 10 * static_cast<int>(s)) +
                    static_cast<float>(k));
  };
  const auto mean_gradient = [&](const std::vector<float>& values, int update, const std::vector<size_t>& peers) {
    std::vector<double> sum(dim);
    double total = 0;
    for (const size_t peer : peers)
      for (size_t s = 0; s <= peer; ++s, total += 1)
        for (size_t k = 0; k < dim; ++k) sum[k] += values[k] - sample(update, peer, s, k);
    std::vector<float> mean(dim);
    for (size_t k = 0; k < dim; ++k) mean[k] = static_cast<float>(sum[k] / total);
    return mean;
  };
  auto options = quick_options();
  options.target_samples = 6;
  auto swarms = make_swarms(count, options);
  std::vector<std::vector<float>> values(count, std::vector<float>(dim));
  in_threads(count, [&](size_t i) {
    Collector collector(*swarms[i], dim, {.wait_for_peers = Milliseconds(4000)});
    for (int update = 0; update < updates; ++update) {
      const auto own = static_cast<int64_t>(i) + 1;
      RANK_CHECK(collector.add(mean_gradient(values[i], update, {i}), static_cast<double>(own), own, 0.01));
      RANK_CHECK(collector.last_average().members == count);
      for (size_t k = 0; k < dim; ++k) values[i][k] -= 0.2f * collector.gradients()[k];
      collector.updated();
      RANK_CHECK(collector.epoch() == update + 1);
      RANK_CHECK(collector.state_due() && collector.average_state(values[i]));
    }
  });
  std::vector<float> expected(dim);
  for (int update = 0; update < updates; ++update) {
    const auto mean = mean_gradient(expected, update, {0, 1, 2});
    for (size_t k = 0; k < dim; ++k) expected[k] -= 0.2f * mean[k];
  }
  for (size_t k = 0; k < dim; ++k) CHECK(std::abs(values[0][k] - expected[k]) < 1e-6f);
  CHECK(values[1] == values[0]);
  CHECK(values[2] == values[0]);
}
