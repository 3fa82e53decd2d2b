// Ten thousand hostile messages: the peer drops them, stays within its limits, and goes on with its swarm.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <random>

#include "runner/base/process_stat.hpp"
#include "strategies/hivemind/swarm.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::swarm;
using runner::bytes_of_text;
using runner::Digest;
using runner::testing::wait_until;

namespace {

const std::string secret = "a secret of the test";

/// Connects from an address of its own, so that a ban does not concern the other peers of the test.
std::optional<Socket> connect_from(const char* from, uint16_t port, const Stop& stop) {
  runner::Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{}, to{};
  own.sin_family = to.sin_family = AF_INET;
  ::inet_pton(AF_INET, from, &own.sin_addr);
  ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  to.sin_port = htons(port);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      ::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    return std::nullopt;
  return Socket(std::move(fd), stop);
}

/// Bytes that are no message of a peer, or that claim to be one.
Bytes hostile_bytes(std::mt19937_64& random) {
  Bytes bytes(random() % 300);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  if (random() % 2 == 0) return bytes;
  ByteWriter out;  // a right greeting, and then a message with any length and type
  out.bytes(bytes_of_text("RSW1")).number(random()).number(random());
  out.number(static_cast<uint32_t>(random() % 3 == 0 ? random() : random() % 200))
      .number(static_cast<uint8_t>(random() % 14));
  return out.bytes(bytes).take();
}

/// An authentic peer that sends wrong payloads: the secret alone gives no power over the memory or the groups of others.
void send_authentic_nonsense(uint16_t port, std::mt19937_64& random) {
  const Stop stop = false;
  try {
    const auto deadline = Clock::now() + Milliseconds(500);
    Channel channel = Channel::connect({"127.0.0.1", port}, swarm_key(secret, "runner"), deadline, stop);
    Bytes payload(random() % 200);
    for (auto& byte : payload) byte = static_cast<uint8_t>(random());
    channel.send(static_cast<MessageType>(random() % 14), payload, deadline);
    channel.receive(Clock::now() + Milliseconds(100));
  } catch (const std::runtime_error&) {
  }
}

}  // namespace

TEST_CASE("ten thousand hostile messages do no harm, also from the address of the peers") {
  // From an address of its own without bans, so that all are read; and with bans from the address of the peers.
  const bool shares_address = GENERATE(false, true);
  const char* const from = shares_address ? "127.0.0.1" : "127.0.0.9";
  const SwarmOptions options{
      .secret = secret,
      .schema = 1,
      .target_samples = 4,
      .matchmaking_time = Milliseconds(2000),
      .averaging_timeout = Milliseconds(5000),
      .gossip_interval = Milliseconds(100),
      .record_lifetime = Milliseconds(10'000),
      .server = {.bans = shares_address ? BanList::Limits()
                                        : BanList::Limits{.offences_before = 1 << 30, .shared_per_second = 1 << 30}}};
  Swarm first(options);
  auto second_options = options;
  second_options.initial_peers = {{"127.0.0.1", first.port()}};
  Swarm second(second_options);
  first.participate();
  second.participate();
  REQUIRE(wait_until([&] { return first.progress().peers == 2 && second.progress().peers == 2; }, 5));
  const int64_t before = runner::peak_resident_bytes();
  std::mt19937_64 random(5);
  const Stop stop = false;
  for (int i = 0; i < 10'000; ++i) {
    const auto bytes = hostile_bytes(random);
    const auto deadline = Clock::now() + Milliseconds(200);
    auto socket = connect_from(from, first.port(), stop);
    if (!socket) continue;
    try {
      socket->write(bytes, deadline);
    } catch (const ConnectionError&) {  // it has closed the connection already
    }
    if (i % 50 == 0) send_authentic_nonsense(first.port(), random);
  }
  CHECK(first.counts().accepted + first.counts().refused > 10'000);
  CHECK(first.counts().offences > (shares_address ? 50 : 1000));
  CHECK(first.counts().most_open <= 256);
  CHECK(runner::peak_resident_bytes() - before < 64 << 20);
  // The swarm works as before, when the second is over for which a shared address may be refused.
  if (shares_address) std::this_thread::sleep_for(Milliseconds(1100));
  CHECK(wait_until([&] { return first.progress().peers == 2 && second.progress().peers == 2; }, 5));
  std::vector<float> a(1000, 1.0f), b(1000, 3.0f);
  std::thread other([&] { second.average("after", b, 1, Compression::none); });
  const auto result = first.average("after", a, 1, Compression::none);
  other.join();
  CHECK(result.members == 2);
  CHECK(result.failed.empty());
  CHECK(a == std::vector<float>(1000, 2.0f));
  CHECK(b == a);
  CHECK(first.progress().epoch == 0);
}

TEST_CASE("an address that sends hostile messages is refused, and others are not") {
  const Digest key = swarm_key(secret, "runner");
  Server server("127.0.0.1", 0, key, {});
  server.on(MessageType::gossip, [](const Message& message, Channel& channel) {
    channel.send(MessageType::gossip, message.payload, Clock::now() + Milliseconds(500));
  });
  server.start();
  const Stop stop = false;
  const Bytes nonsense(20, 'x');
  int tries = 0;
  const bool refused = wait_until(
      [&] {
        if (auto socket = connect_from("127.0.0.9", server.port(), stop)) {
          ++tries;
          try {
            socket->write(nonsense, Clock::now() + Milliseconds(200));
          } catch (const ConnectionError&) {
          }
        }
        return server.counts().refused > 20;
      },
      10);
  CHECK(refused);
  CHECK(server.counts().offences < tries);
  Channel channel = Channel::connect({"127.0.0.1", server.port()}, key, Clock::now() + Milliseconds(1000), stop);
  CHECK(channel.ask(MessageType::gossip, Bytes{1}, MessageType::gossip, Clock::now() + Milliseconds(1000)).payload ==
        Bytes{1});
}

TEST_CASE("a quarter of the connections is for addresses of peers") {
  Server server("127.0.0.1", 0, swarm_key(secret, "runner"), {.connections = 8, .strangers_of_address = 100});
  server.spare([](const std::string& address) { return address == "127.0.0.8"; });
  server.start();
  const Stop stop = false;
  std::vector<Socket> open;
  const auto connect = [&](const char* from, int count) {
    for (int i = 0; i < count; ++i)
      if (auto socket = connect_from(from, server.port(), stop)) open.push_back(std::move(*socket));
  };
  connect("127.0.0.9", 10);
  CHECK(wait_until([&] { return server.counts().accepted == 6 && server.counts().refused == 4; }, 3));
  connect("127.0.0.8", 3);
  CHECK(wait_until([&] { return server.counts().accepted == 8 && server.counts().refused == 5; }, 3));
}

TEST_CASE("connections that send nothing use a bounded number of places, and free them in time") {
  Server server("127.0.0.1", 0, swarm_key(secret, "runner"),
                {.connections = 20, .strangers_of_address = 8, .greeting = Milliseconds(300)});
  server.start();
  const Stop stop = false;
  std::vector<Socket> silent;
  for (int i = 0; i < 40; ++i)
    if (auto socket = connect_from("127.0.0.9", server.port(), stop)) silent.push_back(std::move(*socket));
  CHECK(wait_until([&] { return server.counts().accepted + server.counts().refused == 40; }, 5));
  CHECK(server.counts().most_open <= 8);
  std::this_thread::sleep_for(Milliseconds(600));
  const auto accepted = server.counts().accepted;
  auto again = connect_from("127.0.0.9", server.port(), stop);
  CHECK(wait_until([&] { return server.counts().accepted == accepted + 1; }, 3));
}
