// Several supervisors with fake workers. The supervisor of rank 0 is in this process, the others are forked.
#include "runner/launch/members.hpp"

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "tests/launch/members_support.hpp"
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
  const pid_t leader = start_process([&] {
    Leader doomed(introduction(0, 2, 1, port), {"*=wait"});
    doomed.hooks.on_tick = [&] {
      if (doomed.all("ready").size() < 2) return;
      std::ofstream(folder.path / "pid") << doomed.event("ready", 1)["pid"];
      ::raise(SIGKILL);
    };
    return static_cast<int>(doomed.go().code);
  });
  Follower follower(introduction(1, 2, 1, port));
  CHECK(end_of(leader) == 128 + SIGKILL);
  Ended ended = follower.wait();
  CHECK(ended.code == 1);
  CHECK(ended.words == "rank 1 (node 1, host host1): lost the supervisor of rank 0 (127.0.0.1:" + std::to_string(port) +
                           "): it was killed, or its host cannot be reached");
  CHECK_FALSE(alive(std::stoi(read_file(folder.path / "pid"))));
}

TEST_CASE("a member that does not follow the protocol is lost, and does not end the leader in another way") {
  for (const json& message : {json{{"event", "note"}, {"rank", -1}}, json{{"event", 5}, {"rank", 1}},
                              json{{"say", "exit"}, {"rank", 7}, {"code", 0}}, json{{"say", "signal"}, {"signal", 9}},
                              json{{"say", "exit"}, {"rank", 1}, {"code", "x"}}}) {
    const int port = free_port();
    const pid_t member = start_process([&] {
      MessageSocket leader = join_leader(introduction(1, 2, 1, port), 20s);
      const auto started = [&] {
        const auto said = leader.receive();
        return said && (*said)["say"] == "start";
      };
      wait_until(started, 20);
      leader.send(message);
      while (leader.is_open()) leader.receive();
      return 0;
    });
    Leader leader(introduction(0, 2, 1, port), {"*=wait"});
    CHECK(leader.go().first_cause ==
          "rank 1 is lost: its supervisor on host1 has gone, or that host cannot be reached");
    CHECK(end_of(member) == 0);
  }
}

TEST_CASE("a leader cannot set other variables and options of workers than those of a training") {
  struct Row {
    json changes;
    std::string what;
  };
  const std::vector<Row> table{{{{"environment", {{"LD_PRELOAD", "/x.so"}}}}, "environment: LD_PRELOAD"},
                               {{{"environment", {{"OMP_NUM_THREADS", "1;x"}}}}, "environment: OMP_NUM_THREADS"},
                               {{{"arguments", {"--describe-plugin", "/x.so", "/y"}}}, "arguments: --describe-plugin"},
                               {{{"store_port", 70'000}}, "store_port"},
                               {{{"world_size", -3}}, "world_size"},
                               {{{"first_rank", 5}, {"world_size", 2}}, "first_rank"}};
  for (const Row& row : table) {
    int port = free_port();
    Follower follower(introduction(1, 2, 1, port));
    MessageSocket leader = accept_node(port);
    leader.send({{"say", "welcome"}});
    json start = start_order("/nowhere");
    start.update(row.changes);
    leader.send(start);
    const Ended ended = follower.wait();
    CHECK(ended.code == 1);
    CHECK(ended.words == "rank 1 (node 1, host host1): the supervisor of rank 0 (127.0.0.1:" + std::to_string(port) +
                             ") does not follow the protocol: the message has no right \"" + row.what + "\"");
  }
}

TEST_CASE("a node that does not see the run folder names a solution") {
  int port = free_port();
  Follower follower(introduction(1, 2, 1, port));
  MessageSocket leader = accept_node(port);
  leader.send({{"say", "welcome"}});
  leader.send(start_order("/nowhere/runs/x/logs"));
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
