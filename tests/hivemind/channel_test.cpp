// Messages between peers: authentic ones arrive, others close the connection and are counted.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/hivemind/server.hpp"
#include "tests/hivemind/flaky_proxy.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::swarm;
using runner::bytes_of_text;
using runner::Digest;
using runner::testing::FlakyProxy;
using runner::testing::wait_until;

namespace {

const Digest right_key = swarm_key("a secret of the test", "run");
const Stop never = false;

Deadline soon() { return Clock::now() + Milliseconds(3000); }

/// Answers each gossip with its payload backwards.
struct Echo {
  Server server{"127.0.0.1", 0, right_key, {}};
  std::atomic<int> handled = 0;
  Echo() {
    server.on(MessageType::gossip, [this](const Message& message, Channel& channel) {
      ++handled;
      channel.send(MessageType::gossip, Bytes(message.payload.rbegin(), message.payload.rend()), soon());
    });
    server.start();
  }
  Endpoint at() const { return {"127.0.0.1", server.port()}; }
};

Bytes echoed(const Endpoint& to, const Digest& key, const Bytes& payload) {
  Channel channel = Channel::connect(to, key, soon(), never);
  return channel.ask(MessageType::gossip, payload, MessageType::gossip, soon()).payload;
}

}  // namespace

TEST_CASE("messages arrive, and many on one connection") {
  Echo echo;
  Channel channel = Channel::connect(echo.at(), right_key, soon(), never);
  Bytes large(1 << 20, 7);
  large.front() = 1;
  for (const Bytes& payload : {Bytes{1, 2, 3}, Bytes{}, large}) {
    const auto answer = channel.ask(MessageType::gossip, payload, MessageType::gossip, soon());
    CHECK(answer.payload == Bytes(payload.rbegin(), payload.rend()));
  }
  CHECK(echo.server.counts().messages == 3);
  CHECK(echo.server.counts().offences == 0);
}

TEST_CASE("a peer with another secret or another run is an offence") {
  Echo echo;
  CHECK_THROWS_AS(echoed(echo.at(), swarm_key("another secret", "run"), {1}), ConnectionError);
  CHECK_THROWS_AS(echoed(echo.at(), swarm_key("a secret of the test", "other"), {1}), ConnectionError);
  CHECK(wait_until([&] { return echo.server.counts().offences == 2; }, 3));
  CHECK(echo.handled == 0);
}

TEST_CASE("a changed byte anywhere in a message is an offence") {
  // 20 bytes of greeting, 5 of head, 8 of payload, 16 of the code.
  for (const int64_t at : {0, 4, 19, 24, 25, 32, 33, 48}) {
    Echo echo;
    FlakyProxy proxy(echo.server.port(), [at](int) { return FlakyProxy::Fault{.flip_at = at}; });
    INFO("byte " << at);
    CHECK_THROWS_AS(echoed({"127.0.0.1", proxy.port()}, right_key, Bytes(8, 1)), ConnectionError);
    CHECK(wait_until([&] { return echo.server.counts().offences == 1; }, 3));
    CHECK(echo.handled == 0);
  }
}

TEST_CASE("what a peer has sent once is not authentic on another connection") {
  Echo echo;
  std::vector<uint8_t> recorded;
  {
    FlakyProxy proxy(echo.server.port(), [](int) { return FlakyProxy::Fault(); });
    CHECK(echoed({"127.0.0.1", proxy.port()}, right_key, {1, 2}) == Bytes{2, 1});
    recorded = proxy.recorded();
  }
  REQUIRE(recorded.size() == 20 + 5 + 2 + 16);
  Socket socket = connect_to(echo.at(), soon(), never);
  std::vector<uint8_t> greeting(20);
  socket.read(greeting, soon());
  socket.write(recorded, soon());
  CHECK_THROWS_AS(socket.read(greeting, soon()), ConnectionError);
  CHECK(echo.handled == 1);
  CHECK(wait_until([&] { return echo.server.counts().offences == 1; }, 3));
}

TEST_CASE("a message that is repeated on its connection is not authentic") {
  Echo echo;
  // The proxy sends the first message twice.
  FlakyProxy proxy(echo.server.port(), [](int) { return FlakyProxy::Fault{.repeat_from = 20}; });
  Channel channel = Channel::connect({"127.0.0.1", proxy.port()}, right_key, soon(), never);
  CHECK(channel.ask(MessageType::gossip, Bytes{1, 2}, MessageType::gossip, soon()).payload == Bytes{2, 1});
  CHECK_THROWS_AS(channel.receive(soon()), ConnectionError);
  CHECK(echo.handled == 1);
  CHECK(wait_until([&] { return echo.server.counts().offences == 1; }, 3));
}

TEST_CASE("a length beyond the limit ends the connection before anything is stored") {
  Echo echo;
  Socket socket = connect_to(echo.at(), soon(), never);
  std::vector<uint8_t> greeting(20);
  socket.read(greeting, soon());
  socket.write(greeting, soon());
  socket.write(ByteWriter().number(uint32_t{0xffffffff}).number(uint8_t{1}).done(), soon());
  CHECK_THROWS_AS(socket.read(greeting, soon()), ConnectionError);
  CHECK(wait_until([&] { return echo.server.counts().offences == 1; }, 3));
  Channel channel = Channel::connect(echo.at(), right_key, soon(), never);
  CHECK_THROWS_AS(channel.send(MessageType::gossip, Bytes(first_payload_limit + 1), soon()), std::length_error);
}

TEST_CASE("the first answer of a peer may be longer than the first message of one that has connected") {
  Server server{"127.0.0.1", 0, right_key, {}};
  const Bytes large(first_payload_limit + 100, 3);
  server.on(MessageType::want_state,
            [&](const Message&, Channel& channel) { channel.send(MessageType::state, large, soon()); });
  server.start();
  Channel channel = Channel::connect({"127.0.0.1", server.port()}, right_key, soon(), never);
  CHECK(channel.ask(MessageType::want_state, Bytes{1}, MessageType::state, soon()).payload == large);
}

TEST_CASE("a message of unknown type is an offence") {
  Echo echo;
  Channel channel = Channel::connect(echo.at(), right_key, soon(), never);
  channel.send(static_cast<MessageType>(77), Bytes{}, soon());
  CHECK_THROWS_AS(channel.receive(soon()), ConnectionError);
  CHECK(wait_until([&] { return echo.server.counts().offences == 1; }, 3));
}

TEST_CASE("a peer that stops in the middle of a message ends the wait at the deadline") {
  const Stop stop = false;
  Listener listener("127.0.0.1", 0, stop);
  std::thread silent([&] {
    auto socket = listener.accept(Milliseconds(2000));
    std::vector<uint8_t> half(10, 'R');
    if (socket) socket->write(half, soon());
    std::this_thread::sleep_for(Milliseconds(600));
  });
  const auto begun = Clock::now();
  CHECK_THROWS_AS(Channel::connect({"127.0.0.1", listener.port()}, right_key, Clock::now() + Milliseconds(200), never),
                  ConnectionError);
  CHECK(Clock::now() - begun < Milliseconds(550));
  silent.join();
}

TEST_CASE("endpoints are read and written") {
  CHECK(parse_endpoint("10.0.0.1:1440") == Endpoint{"10.0.0.1", 1440});
  CHECK(parse_endpoint("[::1]:80") == Endpoint{"::1", 80});
  CHECK(to_text({"::1", 80}) == "[::1]:80");
  for (const char* wrong : {"", "host", "host:", ":80", "host:0", "host:70000", "host:8x", "::1:80", "a b:80"})
    CHECK_FALSE(parse_endpoint(wrong));
}
