// All-reduces of groups, with members that fail in every way.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>

#include "strategies/hivemind/all_reduce.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::swarm;
using runner::bytes_of_text;
using runner::Digest;

namespace {

const Digest key_of_test = swarm_key("a secret of the test", "averages");
const Stop keeps_running = false;

constexpr AllReduce::Options quick = {
    .sender_timeout = Milliseconds(300), .request_timeout = Milliseconds(400), .piece = 1000};

/// The listening side of one member.
struct Node {
  Server server{"127.0.0.1", 0, key_of_test, {}};
  AllReduce all_reduce{server, key_of_test, quick};
  void start() { server.start(); }
};

float value_of(size_t member, size_t i) { return std::sin(static_cast<float>(member * 7919 + i)); }

std::vector<float> values_of(size_t member, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value_of(member, i);
  return values;
}

double weight_of(size_t member) { return 1.0 + 0.5 * static_cast<double>(member); }

/// The weighted average of these members.
float average_of(const std::vector<size_t>& members, size_t i) {
  double sum = 0, total = 0;
  for (const size_t member : members) {
    sum += weight_of(member) * value_of(member, i);
    total += weight_of(member);
  }
  return static_cast<float>(sum / total);
}

/// A group of nodes of this process. Those that are not started accept no connections.
struct Cluster {
  std::vector<std::unique_ptr<Node>> nodes;
  Group group;
  size_t count;  ///< of values

  Cluster(size_t members, size_t values) : count(values) {
    group.id.bytes[0] = 42;
    for (size_t i = 0; i < members; ++i) {
      nodes.push_back(std::make_unique<Node>());
      PeerId id;
      id.bytes[0] = static_cast<uint8_t>(i);
      group.members.push_back({.id = id, .at = {"127.0.0.1", nodes.back()->server.port()}});
    }
  }
  Group as_seen_by(size_t member) const {
    Group own = group;
    own.own = member;
    return own;
  }
  struct Outcome {
    std::vector<float> values;
    ReduceResult result;
    double seconds = 0;
  };
  /// All members in `who` reduce at the same time.
  std::vector<Outcome> run(const std::vector<size_t>& who, Compression compression = Compression::none,
                           Milliseconds limit = Milliseconds(4000)) {
    std::vector<Outcome> outcomes(nodes.size());
    std::vector<std::thread> threads;
    for (const size_t member : who) {
      nodes[member]->start();
      outcomes[member].values = values_of(member, count);
    }
    for (const size_t member : who)
      threads.emplace_back([&, member] {
        const auto begun = Clock::now();
        outcomes[member].result = nodes[member]->all_reduce.run(as_seen_by(member), outcomes[member].values,
                                                                weight_of(member), compression, begun + limit);
        outcomes[member].seconds = std::chrono::duration<double>(Clock::now() - begun).count();
      });
    for (auto& thread : threads) thread.join();
    return outcomes;
  }
};

std::vector<size_t> first(size_t count) {
  std::vector<size_t> list(count);
  for (size_t i = 0; i < count; ++i) list[i] = i;
  return list;
}

/// Sends the first piece of a part as member `member`, and then nothing.
Channel send_one_piece(Cluster& cluster, size_t member, size_t to, std::span<const float> piece) {
  const auto deadline = Clock::now() + Milliseconds(2000);
  Channel channel = Channel::connect(cluster.group.members[to].at, key_of_test, deadline, keeps_running);
  ByteWriter head;
  write(head, cluster.group.id);
  head.number(static_cast<uint16_t>(member)).number(static_cast<uint64_t>(cluster.count));
  head.number(static_cast<uint8_t>(Compression::none)).number(weight_of(member));
  channel.send(MessageType::reduce, head.done(), deadline);
  channel.send(MessageType::values, compress(Compression::none, piece), deadline);
  return channel;
}

}  // namespace

TEST_CASE("all members get the weighted average, with equal bits") {
  const size_t members = GENERATE(2, 3, 5, 8);
  const size_t count = GENERATE(1, 7, 10'001);
  Cluster cluster(members, count);
  const auto outcomes = cluster.run(first(members));
  INFO(members << " members, " << count << " values");
  for (size_t i = 0; i < count; ++i) REQUIRE(std::abs(outcomes[0].values[i] - average_of(first(members), i)) < 1e-6f);
  for (const auto& outcome : outcomes) {
    CHECK(outcome.result.complete());
    CHECK(outcome.values == outcomes[0].values);
  }
}

TEST_CASE("compressed averages are near, and sums do not depend on the order of arrival") {
  const auto kind = GENERATE(Compression::float16, Compression::uniform_8bit, Compression::blockwise_8bit);
  const double allowed = kind == Compression::float16 ? 2e-3 : 0.04;
  Cluster cluster(4, 9000), again(4, 9000);
  const auto outcomes = cluster.run(first(4), kind), repeated = again.run(first(4), kind);
  for (size_t member = 0; member < 4; ++member) {
    CHECK(outcomes[member].result.complete());
    CHECK(outcomes[member].values == repeated[member].values);
    for (size_t i = 0; i < 9000; ++i) REQUIRE(std::abs(outcomes[member].values[i] - average_of(first(4), i)) < allowed);
  }
}

TEST_CASE("values that are equal on all members stay as they are with compression") {
  const auto kind = GENERATE(Compression::float16, Compression::uniform_8bit, Compression::blockwise_8bit);
  Cluster cluster(2, 3000);
  std::vector<std::vector<float>> values(2, values_of(0, 3000));
  std::vector<std::thread> threads;
  for (size_t member = 0; member < 2; ++member) {
    cluster.nodes[member]->start();
    threads.emplace_back([&, member] {
      cluster.nodes[member]->all_reduce.run(cluster.as_seen_by(member), values[member], 1, kind,
                                            Clock::now() + Milliseconds(4000));
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t member = 0; member < 2; ++member)
    for (size_t i = 0; i < 3000; ++i) REQUIRE(std::abs(values[member][i] - value_of(0, i)) < 1e-6);
}

TEST_CASE("a member that never comes is left out, and its part keeps own values") {
  Cluster cluster(4, 8000);
  const auto outcomes = cluster.run({0, 1, 2});
  for (const size_t member : {0, 1, 2}) {
    CHECK(outcomes[member].result.excluded == std::set<size_t>{3});
    CHECK(outcomes[member].result.failed == std::set<size_t>{3});
    CHECK(outcomes[member].seconds < 3);
    for (size_t i = 0; i < 6000; ++i) REQUIRE(std::abs(outcomes[member].values[i] - average_of({0, 1, 2}, i)) < 1e-6f);
    for (size_t i = 6000; i < 8000; ++i) REQUIRE(outcomes[member].values[i] == value_of(member, i));
  }
}

TEST_CASE("a member that dies in the middle is left out of the pieces that follow") {
  // Part 0 has values 0 to 3000, in three pieces. Member 2 sends the first one to member 0, and then closes or stays silent.
  const bool closes = GENERATE(true, false);
  Cluster cluster(3, 9000);
  const auto own = values_of(2, 9000);
  std::optional<Channel> open;
  std::thread dying([&] {
    Channel channel = send_one_piece(cluster, 2, 0, std::span(own).first(1000));
    channel.receive(MessageType::average, Clock::now() + Milliseconds(2000));
    if (!closes) open.emplace(std::move(channel));
  });
  const auto outcomes = cluster.run({0, 1});
  dying.join();
  INFO((closes ? "it closes" : "it is silent"));
  CHECK(outcomes[0].result.excluded == std::set<size_t>{2});
  for (const size_t member : {0, 1}) {
    CHECK(outcomes[member].seconds < 4);
    for (size_t i = 0; i < 1000; ++i) REQUIRE(std::abs(outcomes[member].values[i] - average_of({0, 1, 2}, i)) < 1e-6f);
    for (size_t i = 1000; i < 6000; ++i) REQUIRE(std::abs(outcomes[member].values[i] - average_of({0, 1}, i)) < 1e-6f);
    for (size_t i = 6000; i < 9000; ++i) REQUIRE(outcomes[member].values[i] == value_of(member, i));
  }
  CHECK(std::equal(outcomes[0].values.begin(), outcomes[0].values.begin() + 6000, outcomes[1].values.begin()));
}

TEST_CASE("a member whose values are not finite is left out from that piece on") {
  Cluster cluster(3, 3000);
  std::vector<float> wrong(1000, 1.0f);
  wrong[500] = NAN;
  std::thread sending([&] {
    Channel channel = send_one_piece(cluster, 2, 0, wrong);
    try {
      channel.receive(Clock::now() + Milliseconds(2000));
    } catch (const std::runtime_error&) {  // the connection is closed
    }
  });
  const auto outcomes = cluster.run({0, 1});
  sending.join();
  CHECK(runner::testing::wait_until([&] { return cluster.nodes[0]->server.counts().offences == 1; }, 3));
  for (size_t i = 0; i < 1000; ++i) REQUIRE(std::abs(outcomes[1].values[i] - average_of({0, 1}, i)) < 1e-6f);
}

TEST_CASE("a member that accepts connections and never answers costs its part and no more time than the limit") {
  Cluster cluster(3, 3000);
  const Stop stop = false;
  Listener paused("127.0.0.1", 0, stop);  // as of a process that is stopped: the system accepts its connections
  cluster.group.members[1].at.port = paused.port();
  const auto outcomes = cluster.run({0, 2}, Compression::none, Milliseconds(1500));
  for (const size_t member : {0, 2}) {
    CHECK(outcomes[member].result.failed == std::set<size_t>{1});
    CHECK(outcomes[member].seconds < 2.5);
    for (const size_t i : {0, 999, 2000, 2999})
      CHECK(std::abs(outcomes[member].values[i] - average_of({0, 2}, i)) < 1e-6f);
    CHECK(outcomes[member].values[1500] == value_of(member, 1500));
  }
}

TEST_CASE("a member with other values, or that is no member, is an offence and changes nothing") {
  Cluster cluster(2, 100);
  std::thread wrong([&] {
    for (const auto& [member, count] : {std::pair<uint16_t, uint64_t>{1, 99}, {0, 100}, {7, 100}}) {
      const auto deadline = Clock::now() + Milliseconds(2000);
      Channel channel = Channel::connect(cluster.group.members[0].at, key_of_test, deadline, keeps_running);
      ByteWriter head;
      write(head, cluster.group.id);
      head.number(member).number(count).number(uint8_t{0}).number(1.0);
      channel.send(MessageType::reduce, head.done(), deadline);
      try {
        channel.receive(deadline);
        std::abort();
      } catch (const ConnectionError&) {
      }
    }
  });
  cluster.nodes[0]->start();
  auto values = values_of(0, 100);
  std::thread late([&] {
    std::this_thread::sleep_for(Milliseconds(150));
    cluster.run({1});
  });
  const auto result = cluster.nodes[0]->all_reduce.run(cluster.as_seen_by(0), values, weight_of(0), Compression::none,
                                                       Clock::now() + Milliseconds(3000));
  wrong.join();
  late.join();
  CHECK(runner::testing::wait_until([&] { return cluster.nodes[0]->server.counts().offences == 3; }, 3));
  CHECK(result.complete());
  for (size_t i = 0; i < 100; ++i) REQUIRE(std::abs(values[i] - average_of({0, 1}, i)) < 1e-6f);
}
