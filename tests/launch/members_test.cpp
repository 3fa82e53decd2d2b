// Several supervisors with fake workers. The supervisor of rank 0 is in this process, the others are forked.
#include "runner/launch/members.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <thread>

#include "runner/base/files.hpp"
#include "runner/launch/shared_resources.hpp"
#include "tests/launch/members_support.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using namespace runner::testing;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

bool alive(pid_t pid) { return ::kill(pid, 0) == 0; }

}  // namespace

TEST_CASE("ranks of two nodes get their placement, one store and the address of their node") {
  int port = free_port();
  Follower follower(introduction(1, 2, 2, port));
  Leader leader(introduction(0, 2, 2, port), {"*=environment"});
  leader.group.environment = {{"OMP_NUM_THREADS", "3"}};
  CHECK(leader.go().status == "finished");
  CHECK(follower.wait().code == 0);
  json first = leader.event("note", 0)["environment"];
  for (int rank = 0; rank < 4; ++rank) {
    json seen = leader.event("note", rank)["environment"];
    CHECK(seen["RANK"] == std::to_string(rank));
    CHECK(seen["LOCAL_RANK"] == std::to_string(rank % 2));
    CHECK(seen["WORLD_SIZE"] == "4");
    CHECK(seen["LOCAL_WORLD_SIZE"] == "2");
    CHECK(seen["NODE_RANK"] == std::to_string(rank / 2));
    CHECK(seen["MASTER_ADDR"] == "127.0.0.1");
    CHECK(seen["MASTER_PORT"] == first["MASTER_PORT"]);
    CHECK(seen["RUNNER_NODE_ADDRESS"] == "127.0.0.1");
    CHECK(seen["OMP_NUM_THREADS"] == "3");
    CHECK(seen.contains("RUNNER_LISTEN_FD") == (rank == 0));
    CHECK_FALSE(seen.contains("RUNNER_SHM_FD"));
    CHECK(std::filesystem::exists(log_file_of(leader.group, rank)));
  }
  CHECK(first["MASTER_PORT"] != std::to_string(port));  // that is the port of the supervisors
  CHECK_FALSE(std::filesystem::exists(leader.folder.path / "run" / "logs" / proof_file_name));
}

TEST_CASE("under a launcher each rank has its own supervisor") {
  int port = free_port();
  Follower one(launched(1, 3, port)), two(launched(2, 3, port));
  Leader leader(launched(0, 3, port), {"*=environment"});
  CHECK(leader.go().status == "finished");
  CHECK(one.wait().code == 0);
  CHECK(two.wait().code == 0);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(leader.event("note", rank)["environment"]["LOCAL_RANK"] == std::to_string(rank));
    CHECK(leader.event("note", rank)["environment"]["LOCAL_WORLD_SIZE"] == "3");
  }
}

TEST_CASE("workers of other supervisors can connect to rank 0") {
  int port = free_port();
  Follower follower(introduction(1, 2, 2, port));
  Leader leader(introduction(0, 2, 2, port), {"*=meet"});
  CHECK(leader.go().status == "finished");
  CHECK(leader.event("note", 0)["sum"] == 6);
}

TEST_CASE("the end of a rank of another supervisor ends the run for all") {
  struct Row {
    std::vector<std::string> behaviours;
    ExitCode code;
    std::string cause;  ///< its first words
  };
  const std::vector<Row> table{
      {{"1=signal:11", "*=wait"},
       ExitCode::run_failed,
       "rank 1 was killed by signal 11 (SIGSEGV); it wrote nothing to "},
      {{"1=print-and-exit:7", "*=wait"}, ExitCode::run_failed, "rank 1 exited with code 7; the end of "},
      {{"1=fail:usage:no such file", "*=wait"}, ExitCode::usage, "rank 1: no such file"},
      {{"1=fail:environment:disk full", "*=ignore"}, ExitCode::environment, "rank 1: disk full"},
      {{"0=fail:error:first", "1=ignore"}, ExitCode::run_failed, "rank 0: first"},
      {{"*=print-and-exit:3"}, ExitCode::preempted, "the workers received a stop signal from outside"},
  };
  for (const Row& row : table) {
    int port = free_port();
    Follower follower(introduction(1, 2, 1, port));
    Leader leader(introduction(0, 2, 1, port), row.behaviours);
    Outcome outcome = leader.go();
    INFO(row.behaviours.front() << " -> " << outcome.first_cause);
    CHECK(outcome.code == row.code);
    CHECK(outcome.first_cause.starts_with(row.cause));
    Ended ended = follower.wait();
    CHECK(ended.code == static_cast<int>(row.code));
    CHECK(ended.words == outcome.first_cause);
  }
}

TEST_CASE("the first cause is the first event received, independent of the clocks of the hosts") {
  int port = free_port();
  Follower follower(introduction(1, 2, 1, port));
  Leader leader(introduction(0, 2, 1, port), {"*=fail-in-turn"});
  CHECK(leader.go().first_cause == "rank 0: first");
  CHECK(leader.event("failed", 1)["time"] == 1.0);  // the recorded event keeps the time of the rank
  follower.wait();
}

TEST_CASE("a signal to one supervisor stops the ranks of all, and all exit with the same code") {
  struct Row {
    int signal;
    bool to_follower;
    ExitCode code;
  };
  for (const Row& row : {Row{SIGTERM, true, ExitCode::preempted}, Row{SIGINT, true, ExitCode::interrupted},
                         Row{SIGTERM, false, ExitCode::preempted}, Row{SIGINT, false, ExitCode::interrupted}}) {
    int port = free_port();
    Follower follower(introduction(1, 2, 1, port));
    Leader leader(introduction(0, 2, 1, port), {"*=wait"});
    leader.signal_when_ready(row.signal,
                             [&](int signal) { row.to_follower ? follower.send(signal) : (void)::raise(signal); });
    CHECK(leader.go().code == row.code);
    CHECK(leader.event("stopping", 0)["step"] == 7);  // requested to stop, not killed
    CHECK(leader.event("stopping", 1)["step"] == 7);
    CHECK(follower.wait().code == static_cast<int>(row.code));
  }
}

TEST_CASE("the group restarts on all nodes, with the new arguments") {
  int port = free_port();
  Follower follower(introduction(1, 2, 1, port));
  Leader leader(introduction(0, 2, 1, port), {"1=signal:9", "*=wait"});
  leader.group.max_restarts = 1;
  leader.hooks.on_restart = [](WorkerGroup& group, int, const std::string&) { group.arguments = {"*=meet"}; };
  Outcome outcome = leader.go();
  CHECK(outcome.status == "finished");
  CHECK(outcome.restarts == 1);
  CHECK(leader.event("note", 0)["sum"] == 1);
  CHECK(follower.wait().code == 0);
}

TEST_CASE("the ranks of a killed supervisor end, and the run is not restarted without them") {
  int port = free_port();
  Follower follower(introduction(1, 2, 1, port));
  Leader leader(introduction(0, 2, 1, port), {"*=wait"});
  leader.group.max_restarts = 3;
  leader.signal_when_ready(SIGKILL, [&](int signal) { follower.send(signal); });
  Outcome outcome = leader.go();
  CHECK(outcome.code == ExitCode::run_failed);
  CHECK(outcome.restarts == 0);
  CHECK(outcome.first_cause == "rank 1 is lost: its supervisor on host1 has gone, or that host cannot be reached");
  pid_t worker = leader.event("ready", 1)["pid"];
  CHECK(wait_until([&] { return !alive(worker); }, 10));
}

TEST_CASE("rank 0's supervisor stops waiting for a supervisor that hangs after the kill") {
  int port = free_port();
  Follower follower(introduction(1, 2, 1, port));
  Leader leader(introduction(0, 2, 1, port), {"*=wait"});
  leader.group.grace_time = 1s;
  leader.signal_when_ready(SIGTERM, [&](int signal) {
    follower.send(SIGSTOP);
    ::raise(signal);
  });
  CHECK(leader.go().first_cause == "rank 1 is lost: its supervisor on host1 has gone, or that host cannot be reached");
}

TEST_CASE("without rank 0's supervisor the others kill their ranks and report the loss") {
  int port = free_port();
  TemporaryFolder folder;
  pid_t leader = ::fork();
  if (leader == 0) {
    Leader doomed(introduction(0, 2, 1, port), {"*=wait"});
    doomed.hooks.on_tick = [&] {
      if (doomed.all("ready").size() < 2) return;
      std::ofstream(folder.path / "pid") << doomed.event("ready", 1)["pid"];
      ::raise(SIGKILL);
    };
    doomed.go();
  }
  Follower follower(introduction(1, 2, 1, port));
  ::waitpid(leader, nullptr, 0);
  Ended ended = follower.wait();
  CHECK(ended.code == 1);
  CHECK(ended.words == "rank 1 (node 1, host host1): lost the supervisor of rank 0 (127.0.0.1:" + std::to_string(port) +
                           "): it was killed, or its host cannot be reached");
  CHECK_FALSE(alive(std::stoi(read_file(folder.path / "pid"))));
}

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
  const pid_t leader = ::fork();
  if (leader == 0) ::_exit(Leader(introduction(0, 2, 1, port), {"*=finish"}).go().code == ExitCode::done ? 0 : 1);
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
    MessageSocket stranger;
    std::string problem;
    REQUIRE(wait_until(
        [&] {
          stranger = MessageSocket::connect("127.0.0.1", port, 1, problem);
          return stranger.is_open();
        },
        10));
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
  int status = 0;
  ::waitpid(leader, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a member that does not follow the protocol is lost, and does not end the leader in another way") {
  for (const json& message : {json{{"event", "note"}, {"rank", -1}}, json{{"event", 5}, {"rank", 1}},
                              json{{"say", "exit"}, {"rank", 7}, {"code", 0}}, json{{"say", "signal"}, {"signal", 9}},
                              json{{"say", "exit"}, {"rank", 1}, {"code", "x"}}}) {
    const int port = free_port();
    const pid_t member = ::fork();
    if (member == 0) {
      MessageSocket leader = join_leader(introduction(1, 2, 1, port), 20s);
      const auto started = [&] {
        const auto said = leader.receive();
        return said && (*said)["say"] == "start";
      };
      wait_until(started, 20);
      leader.send(message);
      while (leader.is_open()) leader.receive();
      ::_exit(0);
    }
    Leader leader(introduction(0, 2, 1, port), {"*=wait"});
    CHECK(leader.go().first_cause ==
          "rank 1 is lost: its supervisor on host1 has gone, or that host cannot be reached");
    ::waitpid(member, nullptr, 0);
  }
}

TEST_CASE("a leader cannot set other variables and options of workers than those of a training") {
  struct Row {
    json arguments, environment, more;
    std::string what;
  };
  const std::vector<Row> table{
      {json::array(), {{"LD_PRELOAD", "/x.so"}}, {}, "environment: LD_PRELOAD"},
      {json::array(), {{"OMP_NUM_THREADS", "1;x"}}, {}, "environment: OMP_NUM_THREADS"},
      {{"--describe-plugin", "/x.so", "/y"}, json::object(), {}, "arguments: --describe-plugin"},
      {json::array(), json::object(), {{"store_port", 70'000}}, "store_port"},
      {json::array(), json::object(), {{"world_size", -3}}, "world_size"},
      {json::array(), json::object(), {{"first_rank", 5}, {"world_size", 2}}, "first_rank"}};
  for (const Row& row : table) {
    int port = free_port();
    Follower follower(introduction(1, 2, 1, port));
    Descriptor listener = listen_on("127.0.0.1", port);
    MessageSocket leader{Descriptor(::accept(listener.get(), nullptr, nullptr))};
    leader.send({{"say", "welcome"}});
    json start = {{"say", "start"},
                  {"arguments", row.arguments},
                  {"environment", row.environment},
                  {"log_dir", "/nowhere"},
                  {"proof", "1"},
                  {"store_port", 1},
                  {"node_address", ""}};
    if (!row.more.is_null()) start.update(row.more);
    leader.send(start);
    const Ended ended = follower.wait();
    CHECK(ended.code == 1);
    CHECK(ended.words == "rank 1 (node 1, host host1): the supervisor of rank 0 (127.0.0.1:" + std::to_string(port) +
                             ") does not follow the protocol: the message has no right \"" + row.what + "\"");
  }
}

TEST_CASE("with a secret, only nodes that have it take part") {
  const std::string secret = "a secret of many characters";
  const auto with = [](Introduction self, const std::string& text) {
    self.secret = text;
    return self;
  };
  const int port = free_port();
  const pid_t leader = ::fork();
  if (leader == 0)
    ::_exit(Leader(with(introduction(0, 2, 1, port), secret), {"*=meet"}).go().code == ExitCode::done ? 0 : 1);
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
  int status = 0;
  ::waitpid(leader, &status, 0);
  CHECK(status == 0);
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
  pid_t leader = ::fork();
  if (leader == 0) ::_exit(Leader(introduction(0, 3, 1, port), {"*=finish"}).go().code == ExitCode::done ? 0 : 1);
  Follower first(introduction(1, 3, 1, port));
  std::string problem;
  MessageSocket stranger;
  REQUIRE(wait_until(
      [&] {
        stranger = MessageSocket::connect("127.0.0.1", port, 1, problem);
        return stranger.is_open();
      },
      10));
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
  int status = 0;
  ::waitpid(leader, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a supervisor that cannot open more files reports that at once, and not that ranks are missing") {
  int port = free_port();
  TemporaryFolder folder;
  const std::string words = folder.path / "words";
  pid_t leader = ::fork();
  if (leader == 0) {
    rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::vector<int> taken;
    for (int fd = ::dup(2); fd >= 0; fd = ::dup(2)) taken.push_back(fd);
    ::close(taken.back());  // for the listening socket
    std::string said = "met";
    try {
      Members members(introduction(0, 2, 1, port), 20s);
    } catch (const Error& error) {
      said = error.what();
    }
    for (int fd : taken) ::close(fd);
    std::ofstream(words) << said;
    ::_exit(0);
  }
  auto begun = std::chrono::steady_clock::now();
  Follower follower(introduction(1, 2, 1, port));
  ::waitpid(leader, nullptr, 0);
  CHECK(std::chrono::steady_clock::now() - begun < 10s);
  CHECK(read_file(words) ==
        "the supervisor of rank 0 cannot accept another connection: Too many open files; it may open 64 files (ulimit "
        "-n), and needs one for each other supervisor");
}

TEST_CASE("a node that does not see the run folder names a solution") {
  int port = free_port();
  Follower follower(introduction(1, 2, 1, port));
  Descriptor listener = listen_on("127.0.0.1", port);
  MessageSocket leader{Descriptor(::accept(listener.get(), nullptr, nullptr))};
  leader.send({{"say", "welcome"}});
  leader.send({{"say", "start"},
               {"arguments", json::array()},
               {"environment", json::object()},
               {"log_dir", "/nowhere/runs/x/logs"},
               {"proof", "1"},
               {"store_port", 1},
               {"node_address", "127.0.0.1"}});
  std::vector<json> messages;
  REQUIRE(wait_until(
      [&] {
        while (auto message = leader.receive()) messages.push_back(*message);
        return messages.size() == 3;
      },
      10));
  CHECK(messages[0]["say"] == "hello");
  CHECK(messages[1]["event"] == "failed");
  CHECK(messages[1]["kind"] == "environment");
  CHECK(messages[1]["message"] ==
        "host host1 does not see the same folder /nowhere/runs/x as rank 0's host, but all ranks write checkpoints "
        "into it: put RUNNER_HOME on a file system that all nodes share, at the same path");
  CHECK(messages[2] ==
        json{{"say", "exit"}, {"rank", 1}, {"code", 4}, {"signal", 0}, {"oom_suspected", false}, {"log_tail", ""}});
  leader.send({{"say", "end"}, {"code", 4}, {"status", "failed"}, {"first_cause", "x"}});
  CHECK(follower.wait().code == 4);
}
