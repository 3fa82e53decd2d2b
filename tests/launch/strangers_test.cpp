// Who connects to the port of node 0 without being a node: many idle connections, hellos of strangers, floods.
#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runner/launch/arrivals.hpp"
#include "runner/launch/member.hpp"
#include "tests/launch/members_support.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using namespace runner::testing;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

const std::string secret = "a secret of many characters";

/// A connection from a loopback address; closed if there is none.
Descriptor connect_from(const char* from, int port) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{}, to{};
  own.sin_family = to.sin_family = AF_INET;
  ::inet_pton(AF_INET, from, &own.sin_addr);
  ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      ::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    return {};
  return fd;
}

Descriptor connect_soon(int port) {
  Descriptor fd;
  wait_until(
      [&] {
        fd = connect_from("127.0.0.1", port);
        return fd.is_open();
      },
      10);
  return fd;
}

bool is_closed(const Descriptor& fd) {
  char byte = 0;
  return ::recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

json hello_of(const Introduction& self) {
  json hello = to_json(self);
  hello["say"] = "hello";
  return hello;
}

void write_line(const Descriptor& fd, const std::string& line) {
  ::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL);
}

/// The other end of a connection of `member`.
Descriptor connect_member(Member& member) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no socketpair");
  member.socket = MessageSocket(Descriptor(ends[0]));
  member.introduction = introduction(1, 2, 1, 1);
  return Descriptor(ends[1]);
}

/// Calls receive() until all of `count` events are in the inbox, or the connection is closed. Returns how many each call took.
std::vector<size_t> take_events(Member& member, size_t count) {
  std::vector<size_t> taken;
  wait_until(
      [&] {
        const size_t before = member.inboxes[1].events.size();
        member.receive();
        taken.push_back(member.inboxes[1].events.size() - before);
        return member.inboxes[1].events.size() >= count || !member.socket.is_open();
      },
      20);
  return taken;
}

}  // namespace

TEST_CASE("more idle connections than descriptors do not end the rendezvous of a fixed run") {
  const int port = free_port();
  const pid_t leader = start_process([&] {
    rlimit limit{300, 300};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return Leader(introduction(0, 2, 1, port), {"*=finish"}).go().code == ExitCode::done ? 0 : 1;
  });
  std::vector<Descriptor> idle;
  idle.push_back(connect_soon(port));
  while (idle.size() < 600) idle.push_back(connect_from("127.0.0.1", port));
  // The leader keeps the newest of them.
  CHECK(wait_until([&] { return std::ranges::count_if(idle, is_closed) >= 500; }, 4));
  Follower follower(introduction(1, 2, 1, port));
  CHECK(follower.wait().code == 0);
  CHECK(end_of(leader) == 0);
}

TEST_CASE("strangers give up their descriptors for others that connect") {
  const int port = free_port();
  const pid_t leader = start_process([&] {
    Arrivals arrivals("127.0.0.1", port, "", Arrivals::WhenFull::fail, /*most_strangers=*/1000);
    rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return wait_until([&] { return !arrivals.take().empty(); }, 10) ? 0 : 1;
  });
  std::vector<Descriptor> idle;
  idle.push_back(connect_soon(port));
  while (idle.size() < 200) idle.push_back(connect_from("127.0.0.1", port));
  CHECK(wait_until([&] { return std::ranges::count_if(idle, is_closed) >= 136; }, 4));
  const Descriptor node = connect_from("127.0.0.1", port);
  write_line(node, to_line(hello_of(introduction(1, 2, 1, port))));
  CHECK(end_of(leader) == 0);
}

TEST_CASE("a connection that says no hello is closed after a few seconds") {
  const int port = free_port();
  Arrivals arrivals("127.0.0.1", port, "");
  const Descriptor silent = connect_from("127.0.0.1", port);
  CHECK_FALSE(wait_until([&] { return arrivals.take(), is_closed(silent); }, 4));
  CHECK(wait_until([&] { return arrivals.take(), is_closed(silent); }, 3));
}

TEST_CASE("one address with many connections does not push out another one") {
  const int port = free_port();
  Arrivals arrivals("127.0.0.1", port, "", Arrivals::WhenFull::fail, 4);
  const Descriptor modest = connect_from("127.0.0.2", port);
  if (!modest.is_open()) SKIP("this host has only one loopback address");
  std::vector<Descriptor> idle;
  for (int i = 0; i < 10; ++i) idle.push_back(connect_from("127.0.0.1", port));
  CHECK(wait_until([&] { return arrivals.take(), std::ranges::count_if(idle, is_closed) == 7; }, 4));
  write_line(modest, to_line(hello_of(introduction(1, 2, 1, port))));
  std::vector<Arrival> came;
  CHECK(wait_until([&] { return !(came = arrivals.take()).empty(); }, 4));
  CHECK(came.at(0).socket.peer_address() == "127.0.0.2");
}

TEST_CASE("with a secret no stranger takes a place, whatever hello it sends") {
  const int port = free_port();
  Introduction node = introduction(1, 2, 1, port);
  const std::string hello = to_line(hello_of(node));
  node.secret = secret;
  Introduction first = introduction(0, 2, 1, port);
  first.secret = secret;
  const pid_t leader = start_leader(first, {"*=finish"});
  json with_nonce = hello_of(node);
  with_nonce["nonce"] = std::string(32, '0');
  LineSeal other("another secret, not theirs", /*accepts=*/false), earlier(secret, false), its_leader(secret, true);
  earlier.take_greeting(its_leader.greeting());
  const std::string of_other_connection = earlier.seal(hello);
  for (const std::string& said :
       {hello, to_line(with_nonce) + hello, other.greeting() + hello,
        other.greeting() + std::string(32, '0') + " " + hello, earlier.greeting() + of_other_connection}) {
    INFO(said.substr(0, 100));
    const Descriptor stranger = connect_soon(port);
    write_line(stranger, said);
    // The greeting of the leader comes first.
    CHECK(wait_until(
        [&] {
          char bytes[4096];
          return ::recv(stranger.get(), bytes, sizeof bytes, MSG_DONTWAIT) == 0;
        },
        4));
  }
  Follower friendly(node);
  CHECK(friendly.wait().code == 0);
  CHECK(end_of(leader) == 0);
}

TEST_CASE("of a member's messages, a call takes so many and no more") {
  Member member;
  const Descriptor there = connect_member(member);
  const std::string event = to_line({{"event", "note"}, {"rank", 1}});
  const size_t count = 2 * Member::messages_at_once + 1;
  std::thread sends([&] {
    std::string all;
    for (size_t i = 0; i < count; ++i) all += event;
    write_line(there, all);
  });
  sends.join();  // they are all there
  CHECK(take_events(member, count) == std::vector<size_t>{Member::messages_at_once, Member::messages_at_once, 1});
  CHECK(member.socket.is_open());
}

TEST_CASE("of a member's bytes, a call takes so many and no more") {
  Member member;
  const Descriptor there = connect_member(member);
  constexpr size_t line = Member::bytes_at_once / 16, count = 96;
  std::string event = to_line({{"event", "note"}, {"rank", 1}, {"text", std::string(line, 'x')}});
  std::thread sends([&] {
    for (size_t i = 0; i < count; ++i) write_line(there, event);
  });
  const auto taken = take_events(member, count);
  sends.join();
  CHECK(member.inboxes[1].events.size() == count);
  CHECK(std::ranges::max(taken) <= 16);  // the one that reaches the bound is the last
}

TEST_CASE("a member that fills an inbox that nobody reads is lost, and not before") {
  Member member;
  const Descriptor there = connect_member(member);
  const std::string event = to_line({{"event", "note"}, {"rank", 1}});
  std::thread sends([&] {
    for (size_t i = 0; i < Member::events_of_inbox + 1; ++i) {
      write_line(there, event);
      if (i + 1 == Member::events_of_inbox) std::this_thread::sleep_for(1s);
    }
  });
  take_events(member, Member::events_of_inbox);
  CHECK(member.inboxes[1].events.size() == Member::events_of_inbox);
  CHECK(member.socket.is_open());
  sends.join();
  member.receive();
  CHECK_FALSE(member.socket.is_open());
  CHECK(member.inboxes[1].events.size() == Member::events_of_inbox);
}

TEST_CASE("a member's inbox holds a bounded number of bytes") {
  Member member;
  const Descriptor there = connect_member(member);
  const std::string event =
      to_line({{"event", "note"}, {"rank", 1}, {"text", std::string(Member::bytes_of_inbox / 16, 'x')}});
  std::thread sends([&] {
    for (int i = 0; i < 20; ++i) write_line(there, event);
  });
  take_events(member, 20);
  CHECK_FALSE(member.socket.is_open());
  CHECK(member.inboxes[1].events.size() == 15);  // a line is a little longer than its text
  sends.join();
}

TEST_CASE("signals of a member that nobody takes are counted up to a bound") {
  Member member;
  const Descriptor there = connect_member(member);
  for (int i = 0; i < 100; ++i) write_line(there, to_line({{"say", "signal"}, {"signal", SIGTERM}}));
  member.receive();
  CHECK(member.signals.size() == Member::signals_kept);
  CHECK(member.socket.is_open());
}
