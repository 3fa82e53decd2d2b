// What a connection may send: messages and bytes in a second, and bytes of a message. Beyond the bound it waits, or is an offence.
#include <catch2/catch_test_macros.hpp>

#include "strategies/hivemind/all_reduce.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::swarm;
using runner::Digest;
using runner::testing::wait_until;

namespace {

const Digest shared_key = swarm_key("a secret of the test", "run");
const Stop not_stopped = false;

Deadline in_time() { return Clock::now() + Milliseconds(5000); }

/// Counts the gossip that it gets, and answers none.
struct Counter {
  Server server;
  std::atomic<int> handled = 0;
  explicit Counter(Server::Limits limits) : server("127.0.0.1", 0, shared_key, limits) {
    server.on(MessageType::gossip, [this](const Message&, Channel&) { ++handled; });
    server.start();
  }
  Channel connect() const { return Channel::connect({"127.0.0.1", server.port()}, shared_key, in_time(), not_stopped); }
};

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

}  // namespace

TEST_CASE("a connection that has sent the messages of a second waits, and another one does not") {
  Counter counter({.messages_per_second = 10});
  Channel greedy = counter.connect();
  const auto begun = Clock::now();
  for (int i = 0; i < 10; ++i) greedy.send(MessageType::gossip, Bytes{1}, in_time());
  CHECK(wait_until([&] { return counter.handled == 10; }, 0.8));
  CHECK(counter.server.counts().delayed <= 1);  // it waits before the eleventh
  greedy.send(MessageType::gossip, Bytes{1}, in_time());
  Channel modest = counter.connect();
  modest.send(MessageType::gossip, Bytes{1}, in_time());
  CHECK(wait_until([&] { return counter.handled == 11; }, 0.8));
  CHECK(seconds_since(begun) < 0.9);
  CHECK(wait_until([&] { return counter.handled == 12; }, 3));
  CHECK(seconds_since(begun) > 0.9);
  CHECK(counter.server.counts().delayed == 1);
  CHECK(counter.server.counts().offences == 0);
}

TEST_CASE("a connection that has sent the bytes of a second waits") {
  Counter counter({.bytes_per_second = 100'000});
  Channel greedy = counter.connect();
  const auto begun = Clock::now();
  for (int i = 0; i < 2; ++i) greedy.send(MessageType::gossip, Bytes(49'999), in_time());
  greedy.send(MessageType::gossip, Bytes(1000), in_time());  // two bytes are left before it
  greedy.send(MessageType::gossip, Bytes{1}, in_time());
  CHECK(wait_until([&] { return counter.handled == 3; }, 0.8));
  CHECK(seconds_since(begun) < 0.9);
  CHECK(wait_until([&] { return counter.handled == 4; }, 3));
  CHECK(seconds_since(begun) > 0.9);
}

TEST_CASE("a flood of one peer does not keep the server from stopping") {
  Counter counter({.messages_per_second = 1});
  Channel greedy = counter.connect();
  for (int i = 0; i < 100; ++i) greedy.send(MessageType::gossip, Bytes{1}, in_time());
  CHECK(wait_until([&] { return counter.handled == 1; }, 3));
  const auto begun = Clock::now();
  counter.server.stop();
  CHECK(seconds_since(begun) < 0.9);
}

TEST_CASE("a message that asks for something has request_payload_limit bytes at most") {
  for (const size_t beyond : {0, 1}) {
    Counter counter({});
    Channel channel = counter.connect();
    channel.send(MessageType::gossip, Bytes{1}, in_time());
    try {
      channel.send(MessageType::gossip, Bytes(request_payload_limit + beyond), in_time());
    } catch (const ConnectionError&) {  // the server has closed it already
    }
    const auto judged = [&] {
      return counter.handled == (beyond ? 1 : 2) && counter.server.counts().offences == (beyond ? 1 : 0);
    };
    CHECK(wait_until(judged, 3));
  }
}

TEST_CASE("a handler bounds the messages that it receives, and does not take longer ones") {
  constexpr size_t most = 1000;
  for (const size_t beyond : {0, 1}) {
    Server server("127.0.0.1", 0, shared_key, {});
    std::atomic<int> taken = 0;
    server.on(MessageType::reduce, [&](const Message&, Channel& channel) {
      channel.receive(MessageType::values, in_time(), most);
      ++taken;
    });
    server.start();
    Channel channel = Channel::connect({"127.0.0.1", server.port()}, shared_key, in_time(), not_stopped);
    channel.send(MessageType::reduce, Bytes{1}, in_time());
    channel.send(MessageType::values, Bytes(most + beyond), in_time());
    CHECK(wait_until([&] { return taken + server.counts().offences == 1; }, 3));
    CHECK(taken == (beyond ? 0 : 1));
  }
}

TEST_CASE("the values of a piece fit into a message of every compression, and the bound is near") {
  const size_t piece = AllReduce::Options().piece;
  for (const auto kind :
       {Compression::none, Compression::float16, Compression::uniform_8bit, Compression::blockwise_8bit})
    for (const size_t count : {size_t{0}, size_t{1}, piece})
      CHECK(compress(kind, std::vector<float>(count, 0.5f)).size() <= count * sizeof(float) + codebook_bytes);
  CHECK(piece * sizeof(float) + codebook_bytes < payload_limit / 4);
}
