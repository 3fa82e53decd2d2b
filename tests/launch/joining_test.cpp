// Which supervisors may join a run: those that are missing, were started differently, come twice, or are strangers.
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <thread>

#include "tests/launch/members_support.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using namespace runner::testing;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

/// A connection to the leader, which may still have to begin.
MessageSocket connect_stranger(int port) {
  MessageSocket stranger;
  std::string problem;
  REQUIRE(wait_until(
      [&] {
        stranger = MessageSocket::connect("127.0.0.1", port, 1, problem);
        return stranger.is_open();
      },
      10));
  return stranger;
}

}  // namespace

TEST_CASE("missing ranks are named after the deadline, also to the ranks that are there") {
  int port = free_port();
  const std::string meeting = "rendezvous at 127.0.0.1:" + std::to_string(port) + ": ";
  CHECK(refusal([&] { Members(introduction(0, 3, 2, port), 1s); }) ==
        "4: " + meeting +
            "ranks 2-5 of 6 (nodes 1, 2) did not connect within 1s: start the same command there with --node-rank 1 "
            "--master-addr 127.0.0.1 --master-port " +
            std::to_string(port) + ", or allow more time (devices.rendezvous_timeout)");
  Follower came(launched(1, 3, port));
  CHECK(refusal([&] { Members(launched(0, 3, port), 1s); }) ==
        "4: " + meeting +
            "rank 2 of 3 did not connect within 1s: see the launcher's output about them, or allow more time "
            "(devices.rendezvous_timeout)");
  Ended ended = came.wait();
  CHECK(ended.code == 4);
  CHECK(ended.words.starts_with(meeting + "rank 2 of 3 did not connect within 1s"));
}

TEST_CASE("a node that reaches no supervisor names the address that it tried") {
  int port = free_port();
  CHECK(refusal([&] { join_leader(introduction(1, 2, 1, port), 1s); }) ==
        "4: rank 1 (node 1, host host1): the supervisor of rank 0 did not answer at 127.0.0.1:" + std::to_string(port) +
            " within 1s (Connection refused): start it there, or allow more time (devices.rendezvous_timeout)");
  Introduction lost = introduction(1, 2, 1, port);
  lost.placement.master_addr = "no-such-host.invalid";
  std::string said = refusal([&] { join_leader(lost, 1s); });
  CHECK((said == "4: there is no host \"no-such-host.invalid\" (the address of rank 0)" ||
         said.find("did not answer at no-such-host.invalid") != std::string::npos));  // no resolver: it may come later
}

TEST_CASE("nodes with different recipes are refused with every key that differs") {
  int port = free_port();
  Introduction other = introduction(1, 2, 1, port);
  other.alike = {{"model", {{"dim", 32}, {"n_heads", 2}}}};
  Follower follower(other);
  Introduction self = introduction(0, 2, 1, port);
  self.alike["run"]["seed"] = 3;
  const std::string words =
      "rank 1 (node 1, host host1) was not started like rank 0: model.dim is 32 there and 64 here, run.seed is not set "
      "there and 3 here, model.n_heads is 2 there and not set here; every node needs the same command, recipe and "
      "version";
  CHECK(refusal([&] { Members(self, 20s); }) == "2: " + words);
  Ended ended = follower.wait();
  CHECK(ended.code == 2);
  CHECK(ended.words == words);
}

TEST_CASE("nodes with different numbers of ranks are turned away, and the run waits for the right ones") {
  int port = free_port();
  Follower follower(introduction(1, 2, 3, port));
  const std::string words =
      "rank 3 (node 1, host host1) was started for 2 nodes x 3 ranks, rank 0 for 2 nodes x 1 rank: every node needs "
      "the same number of ranks (devices.devices, or devices.cpu_processes on CPU)";
  const std::string said = refusal([&] { Members(introduction(0, 2, 1, port), 2s); });
  CHECK(said.starts_with("4: rendezvous at 127.0.0.1:" + std::to_string(port) +
                         ": rank 1 of 2 (node 1) did not connect"));
  CHECK(said.ends_with("; turned away: " + words));
  CHECK(follower.wait().words == words);
}

TEST_CASE("hostile and damaged hellos are ignored, and the run goes on waiting") {
  const int port = free_port();
  const pid_t leader = start_leader(introduction(0, 2, 1, port), {"*=finish"});
  const auto hello = [&](const json& changes) {
    json message = to_json(introduction(1, 2, 1, port));
    message["say"] = "hello";
    message.merge_patch(changes);
    return message;
  };
  const json deep = json::parse(std::string(60, '[') + std::string(60, ']'));
  const std::vector<json> hostile{hello({{"rank", -5}}),
                                  hello({{"rank", -5}, {"launched", true}}),
                                  hello({{"rank", 1}, {"launched", true}}),
                                  hello({{"rank", 1LL << 40}}),
                                  hello({{"rank", 1.5}}),
                                  hello({{"rank", 0}, {"node_rank", 0}}),
                                  hello({{"node_rank", 7}}),
                                  hello({{"world_size", 0}}),
                                  hello({{"world_size", 1 << 30}}),
                                  hello({{"local_size", -1}}),
                                  hello({{"num_nodes", 3}, {"world_size", 3}}),
                                  hello({{"elastic", true}, {"rank", 1 << 20}}),
                                  hello({{"elastic", 3}}),
                                  hello({{"launched", "yes"}}),
                                  hello({{"job", "another"}}),
                                  hello({{"job", json::array()}}),
                                  hello({{"host", "a\nb"}}),
                                  hello({{"host", std::string(100'000, 'x')}}),
                                  hello({{"alike", 5}}),
                                  hello({{"alike", {{"model", 5}}}}),
                                  hello({{"alike", deep}}),
                                  {{"say", 7}},
                                  {{"event", "failed"}, {"rank", -1}},
                                  {{"say", "exit"}, {"rank", 0}}};
  for (const auto& message : hostile) {
    INFO(message.dump().substr(0, 200));
    MessageSocket stranger = connect_stranger(port);
    stranger.send(message);
    CHECK(wait_until(
        [&] {
          stranger.receive();
          return !stranger.is_open();
        },
        10));
  }
  Follower last(introduction(1, 2, 1, port));
  CHECK(last.wait().code == 0);
  CHECK(end_of(leader) == 0);
}

TEST_CASE("with a secret, only nodes that have it take part") {
  const std::string secret = "a secret of many characters";
  const auto with = [](Introduction self, const std::string& text) {
    self.secret = text;
    return self;
  };
  const int port = free_port();
  const pid_t leader = start_leader(with(introduction(0, 2, 1, port), secret), {"*=meet"});
  const std::vector<std::pair<std::string, std::string>> strangers{
      {"", "it wants the secret of the nodes: set RUNNER_NODES_SECRET"},
      {"another secret, not theirs",
       "the connection was closed without an answer; is RUNNER_NODES_SECRET the same there?"}};
  for (const auto& [other, problem] : strangers) {
    Follower stranger(with(introduction(1, 2, 1, port), other), 2s);
    const Ended ended = stranger.wait();
    CHECK(ended.code == 4);
    CHECK(ended.words.find(" within 2s (" + problem + ")") != std::string::npos);
  }
  Follower friendly(with(introduction(1, 2, 1, port), secret));
  CHECK(friendly.wait().code == 0);
  CHECK(end_of(leader) == 0);
}

TEST_CASE("a sealed line is authentic once, on its connection, and in its direction") {
  const std::string secret = "a secret of many characters";
  LineSeal server(secret, true), client(secret, false), other(secret, true);
  REQUIRE(server.take_greeting(client.greeting()));
  REQUIRE(client.take_greeting(server.greeting()));
  REQUIRE(other.take_greeting(client.greeting()));
  CHECK_FALSE(server.take_greeting("{\"say\":\"greeting\",\"nonce\":\"ab\"}"));
  const std::string first = client.seal("{}\n"), second = client.seal("{}\n");
  CHECK(first != second);
  const auto line = [](const std::string& text) { return std::string_view(text).substr(0, text.size() - 1); };
  CHECK(server.open(line(first)) == "{}");
  CHECK_FALSE(server.open(line(first)));  // again
  CHECK_FALSE(other.open(line(first)));
  CHECK_FALSE(client.open(line(first)));
  CHECK_FALSE(server.open("{}"));
}

TEST_CASE("a duplicate node, a node of another job and an unknown client are rejected, and the run continues") {
  int port = free_port();
  const pid_t leader = start_leader(introduction(0, 3, 1, port), {"*=finish"});
  Follower first(introduction(1, 3, 1, port));
  MessageSocket stranger = connect_stranger(port);
  stranger.send({{"GET", "/"}});
  Follower twin(introduction(1, 3, 1, port));
  Introduction foreign = introduction(1, 3, 1, port);
  foreign.placement.job_id = "other";
  Follower lost(foreign);
  CHECK(lost.wait().words ==
        "port " + std::to_string(port) + " of 127.0.0.1 belongs to another job: set another MASTER_PORT");
  std::this_thread::sleep_for(200ms);
  Follower last(introduction(2, 3, 1, port));
  Ended one = first.wait(), two = twin.wait();
  CHECK(one.code + two.code == 2);  // one of them; the order is random
  CHECK((one.code == 2 ? one : two).words ==
        "rank 1 (node 1, host host1) has already joined, from 127.0.0.1 (host host1): it was started twice, or two "
        "nodes have the same --node-rank, or a stranger has its place (RUNNER_NODES_SECRET keeps strangers out)");
  CHECK(last.wait().code == 0);
  CHECK(end_of(leader) == 0);
}

TEST_CASE("a supervisor that cannot open more files reports that at once, and not that ranks are missing") {
  int port = free_port();
  TemporaryFolder folder;
  const std::string words = folder.path / "words";
  const pid_t leader = start_process([&] {
    rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::vector<int> taken;
    for (int fd = ::dup(2); fd >= 0; fd = ::dup(2)) taken.push_back(fd);
    ::close(taken.back());  // for the listening socket
    const std::string said = refusal([&] { Members(introduction(0, 2, 1, port), 20s); });
    for (int fd : taken) ::close(fd);
    std::ofstream(words) << said;
    return 0;
  });
  auto begun = std::chrono::steady_clock::now();
  Follower follower(introduction(1, 2, 1, port));
  CHECK(end_of(leader) == 0);
  CHECK(std::chrono::steady_clock::now() - begun < 10s);
  CHECK(
      read_file(words) ==
      "4: the supervisor of rank 0 cannot accept another connection: Too many open files; it may open 64 files (ulimit "
      "-n), and needs one for each other supervisor");
}
