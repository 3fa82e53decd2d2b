// Supervisors of an elastic run with fake workers: they come, leave and die, and the next attempt has those that are there.
#include "runner/launch/elastic_members.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "tests/launch/members_support.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

/// A node of an elastic run that starts with one node of `local_size` ranks. Only the leader knows its number.
Introduction elastic(bool leads, int port, const std::string& host, int local_size = 1) {
  Introduction self = introduction(leads ? 0 : 1, 1, local_size, port);
  self.placement.elastic = true;
  self.host = host;
  return self;
}

/// The leader, and its workers on `nodes` nodes.
struct ElasticLeader : Leader {
  ElasticMembers members;
  std::string changed;  ///< what nodes_changed returns, if no node leaves

  ElasticLeader(int port, std::vector<std::string> behaviours, int local_size = 1)
      : Leader(elastic(true, port, "host0", local_size), std::move(behaviours)), members(self) {
    hooks.nodes_changed = [this] {
      members.look();
      const std::string leaving = members.leaving();
      return NodeChange{.why = leaving.empty() ? changed : leaving, .leaving = !leaving.empty()};
    };
  }
  bool wait_for(int nodes) {
    return wait_until(
        [&] {
          members.look();
          return members.there() == nodes;
        },
        20);
  }
  std::vector<std::string> choose(int nodes) {
    auto changes = members.take_part(nodes);
    self.placement.num_nodes = nodes;
    self.placement.world_size = nodes * self.placement.local_size;
    place(group, self.placement);
    group.master_port = 0;
    hooks.end_newcomer = [this](int rank, const Outcome& failure) { return members.end_newcomer(rank, failure); };
    events.clear();
    return changes;
  }
  Outcome attempt() { return go(members); }
};

using Changes = std::vector<std::string>;

/// Whether the process handles Ctrl-Z, as a supervisor does from the moment at which it follows the leader.
bool follows(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigCgt:")) return std::stoull(line.substr(7), nullptr, 16) >> (SIGTSTP - 1) & 1;
  return false;
}

}  // namespace

TEST_CASE("the leader of an elastic run numbers the nodes in the order in which they come") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=environment"}, 2);
  Follower first(elastic(false, port, "host1", 2));
  REQUIRE(leader.wait_for(2));
  Follower second(elastic(false, port, "host2", 2));
  REQUIRE(leader.wait_for(3));
  CHECK(leader.choose(3) == Changes{"host1 joined", "host2 joined"});
  CHECK(leader.attempt().status == "finished");
  for (int rank = 0; rank < 6; ++rank) {
    const json seen = leader.event("note", rank)["environment"];
    CHECK(seen["RANK"] == std::to_string(rank));
    CHECK(seen["WORLD_SIZE"] == "6");
    CHECK(seen["LOCAL_RANK"] == std::to_string(rank % 2));
    CHECK(seen["LOCAL_WORLD_SIZE"] == "2");
    CHECK(seen["NODE_RANK"] == std::to_string(rank / 2));
  }
  leader.members.end({});
  CHECK(first.wait().code == 0);
  CHECK(second.wait().code == 0);
}

TEST_CASE("a lost node ends the attempt without a restart, and its number is given to the next") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=wait"});
  leader.group.max_restarts = 3;
  Follower first(elastic(false, port, "host1"));
  REQUIRE(leader.wait_for(2));
  Follower second(elastic(false, port, "host2"));
  REQUIRE(leader.wait_for(3));
  leader.choose(3);
  leader.hooks.on_tick = [&, sent = false]() mutable {
    if (sent || leader.all("ready").size() < 3) return;
    sent = true;
    first.send(SIGKILL);
  };
  const Outcome outcome = leader.attempt();
  CHECK(outcome.regroup);
  CHECK(outcome.status == "preempted");
  CHECK(outcome.restarts == 0);
  CHECK(outcome.first_cause == "rank 1 is lost: its supervisor on host1 has gone, or that host cannot be reached");
  CHECK(leader.members.there() == 2);
  CHECK(leader.choose(2) == Changes{"node 1 (host1) was lost"});
  leader.group.arguments = {"*=meet"};
  leader.hooks.on_tick = nullptr;
  CHECK(leader.attempt().status == "finished");
  CHECK(leader.event("note", 1)["sum"] == 1);
  leader.members.end({});
  CHECK(second.wait().code == 0);
}

TEST_CASE("a signal to one node of an elastic run stops all ranks with a checkpoint, and only that node leaves") {
  for (const int signal : {SIGTERM, SIGINT}) {
    const int port = free_port();
    ElasticLeader leader(port, {"*=wait"});
    Follower leaves(elastic(false, port, "host1"));
    REQUIRE(leader.wait_for(2));
    Follower stays(elastic(false, port, "host2"));
    REQUIRE(leader.wait_for(3));
    leader.choose(3);
    leader.signal_when_ready(signal, [&](int number) { leaves.send(number); });
    const Outcome outcome = leader.attempt();
    CHECK(outcome.regroup);
    const std::string name = signal == SIGINT ? "SIGINT" : "SIGTERM";
    CHECK(outcome.first_cause == "node 1 (host1) leaves (" + name + ")");
    for (int rank = 0; rank < 3; ++rank) CHECK(leader.event("stopping", rank)["step"] == 7);
    CHECK(leader.members.there() == 2);
    CHECK(leader.choose(2) == Changes{"node 1 (host1) left (" + name + ")"});
    CHECK(leaves.wait().code == (signal == SIGINT ? 130 : 3));
    leader.group.arguments = {"*=meet"};
    leader.hooks.on_tick = nullptr;
    CHECK(leader.attempt().status == "finished");
    leader.members.end({});
    CHECK(stays.wait().code == 0);
  }
}

TEST_CASE("a node that joins during an attempt stops it with a checkpoint") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=wait"});
  Follower late(elastic(false, port, "host1"));  // accepted when the attempt looks
  leader.hooks.on_tick = [&] {
    if (leader.members.there() == 2 && leader.all("ready").size() == 1) leader.changed = "1 node joined";
  };
  const Outcome outcome = leader.attempt();
  CHECK(outcome.regroup);
  CHECK(outcome.first_cause == "1 node joined");
  CHECK(leader.event("stopping", 0)["step"] == 7);
  CHECK(leader.event("note", 0)["message"] ==
        "1 node joined: stopping rank 0 with a checkpoint at the next step boundary, to go on with the nodes that are "
        "there");
  CHECK(leader.choose(2) == Changes{"host1 joined"});
  leader.changed = "";
  leader.hooks.on_tick = nullptr;
  leader.group.arguments = {"*=meet"};
  CHECK(leader.attempt().status == "finished");
  leader.members.end({});
  CHECK(late.wait().code == 0);
}

TEST_CASE("a signal to the leader of an elastic run ends the run on all nodes") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=wait"});
  Follower follower(elastic(false, port, "host1")), waiting(elastic(false, port, "host2"));
  REQUIRE(leader.wait_for(3));
  leader.choose(2);
  leader.signal_when_ready(SIGTERM, [](int signal) { ::raise(signal); });
  const Outcome outcome = leader.attempt();
  CHECK_FALSE(outcome.regroup);
  CHECK(outcome.code == ExitCode::preempted);
  leader.members.end(outcome);
  CHECK(follower.wait().code == 3);
  CHECK(waiting.wait().code == 3);
}

TEST_CASE("a failure of a rank of an elastic run is no change of nodes") {
  const int port = free_port();
  ElasticLeader leader(port, {"1=signal:11", "*=wait"});
  Follower follower(elastic(false, port, "host1"));
  REQUIRE(leader.wait_for(2));
  leader.choose(2);
  const Outcome outcome = leader.attempt();
  CHECK_FALSE(outcome.regroup);
  CHECK(outcome.code == ExitCode::run_failed);
  CHECK_THAT(outcome.first_cause, StartsWith("rank 1 was killed by signal 11 (SIGSEGV)"));
  leader.members.end(outcome);
  CHECK(follower.wait().code == 1);
}

TEST_CASE("a node that waits may leave, and the others do not notice") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=finish"});
  Follower follower(elastic(false, port, "host1"));
  REQUIRE(leader.wait_for(2));
  leader.choose(2);
  CHECK(leader.attempt().status == "finished");
  CHECK(leader.choose(1) == Changes{"host1 waits"});
  follower.send(SIGTERM);
  REQUIRE(leader.wait_for(1));
  CHECK(leader.members.leaving().empty());
  CHECK(leader.choose(1).empty());
  CHECK(follower.wait().code == 3);
}

TEST_CASE("a member that leaves after an attempt gets its end before the next one is chosen") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=finish"});
  Follower follower(elastic(false, port, "host1"));
  REQUIRE(leader.wait_for(2));
  leader.choose(2);
  CHECK(leader.attempt().status == "finished");
  follower.send(SIGTERM);
  REQUIRE(leader.wait_for(1));
  leader.members.part_with_leaving();
  CHECK(follower.wait().code == 3);
  CHECK(leader.choose(1) == Changes{"node 1 (host1) left (SIGTERM)"});
}

TEST_CASE("a node that has not had ranks leaves at once, also while the leader does not look") {
  for (const int signal : {SIGTERM, SIGINT}) {
    const int port = free_port();
    ElasticLeader leader(port, {"*=finish"});
    Follower follower(elastic(false, port, "host1"));
    REQUIRE(leader.wait_for(2));
    leader.choose(2);
    REQUIRE(wait_until([&] { return follows(follower.pid()); }, 20));
    follower.send(signal);
    CHECK(follower.wait().code == (signal == SIGINT ? 130 : 3));
    REQUIRE(leader.wait_for(1));
    CHECK(leader.choose(1) ==
          Changes{"node 1 (host1) left (" + std::string(signal == SIGINT ? "SIGINT)" : "SIGTERM)")});
    CHECK(leader.attempt().status == "finished");
  }
}

TEST_CASE("a node that joins sets the ranks no deadline, and a signal that comes later does") {
  ElasticLeader leader(free_port(), {"*=ignore"});
  leader.group.grace_time = 1s;
  const auto begun = std::chrono::steady_clock::now();
  leader.hooks.on_tick = [&, sent = false]() mutable {
    if (leader.all("ready").size() == 1) leader.changed = "1 node joined";
    if (sent || std::chrono::steady_clock::now() - begun < 2500ms) return;
    sent = true;
    CHECK(leader.all("note").size() == 1);  // nothing was killed
    ::raise(SIGTERM);
  };
  const Outcome outcome = leader.attempt();
  CHECK_FALSE(outcome.regroup);
  CHECK(outcome.code == ExitCode::preempted);
  CHECK(outcome.first_cause == "killed rank 0, still running 1s after the signal (grace_time)");
}

TEST_CASE("ranks that do not stop when a node leaves are killed after the grace time, with a note") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=ignore"});
  leader.group.grace_time = 1s;
  Follower follower(elastic(false, port, "host1"));
  REQUIRE(leader.wait_for(2));
  leader.choose(2);
  leader.signal_when_ready(SIGTERM, [&](int signal) { follower.send(signal); });
  const Outcome outcome = leader.attempt();
  CHECK(outcome.regroup);
  CHECK(outcome.first_cause == "node 1 (host1) leaves (SIGTERM)");
  CHECK(leader.all("note").back()["message"] ==
        "killed ranks 0, 1, still running 1s after they were asked to stop (grace_time); the steps since the newest "
        "checkpoint are repeated");
  leader.choose(1);
  CHECK(follower.wait().code == 3);
}

TEST_CASE("a rank of another node that dies of SIGTERM while it starts does not end the run if its node leaves") {
  for (const bool leaves : {true, false}) {
    const int port = free_port();
    ElasticLeader leader(port, {"1=wait-unprepared", "*=wait"});
    Follower follower(elastic(false, port, "host1"));
    REQUIRE(leader.wait_for(2));
    leader.choose(2);
    leader.signal_when_ready(SIGTERM,
                             [&](int signal) { ::kill(leader.event("ready", 1)["pid"].get<pid_t>(), signal); });
    leader.hooks.nodes_changed = [&] {
      leader.members.look();
      const bool comes = leaves && !leader.all("stopping").empty();
      return NodeChange{.why = comes ? "node 1 leaves" : "", .leaving = comes};
    };
    const Outcome outcome = leader.attempt();
    CHECK(outcome.regroup == leaves);
    CHECK(outcome.status == (leaves ? "preempted" : "failed"));
    CHECK_THAT(outcome.first_cause, StartsWith(leaves ? "node 1 leaves" : "rank 1 was killed by signal 15 (SIGTERM)"));
    leader.members.end(outcome);
    CHECK(follower.wait().code == (leaves ? 3 : 1));
  }
}

TEST_CASE("a node that joins a run and whose ranks fail at the start is ended, and the others go on") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=meet"});
  Follower old(elastic(false, port, "host1"));
  REQUIRE(leader.wait_for(2));
  leader.choose(2);
  CHECK(leader.attempt().status == "finished");
  Follower late(elastic(false, port, "host2"));
  REQUIRE(leader.wait_for(3));
  leader.choose(3);
  leader.group.arguments = {"2=fail:environment:no such library", "*=wait"};
  const Outcome outcome = leader.attempt();
  CHECK(outcome.regroup);
  CHECK(outcome.restarts == 0);
  CHECK(outcome.first_cause == "rank 2: no such library");
  CHECK(leader.members.there() == 2);
  const Ended ended = late.wait();
  CHECK(ended.code == 4);
  CHECK(ended.words == "rank 2: no such library");
  CHECK(leader.choose(2) == Changes{"node 2 (host2) was ended (rank 2: no such library)"});
  leader.group.arguments = {"1=fail:environment:no such library", "*=wait"};  // a node that trained before
  const Outcome failed = leader.attempt();
  CHECK_FALSE(failed.regroup);
  CHECK(failed.code == ExitCode::environment);
  leader.members.end(failed);
  CHECK(old.wait().code == 4);
}

TEST_CASE("many idle connections do not keep nodes from an elastic run") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=finish"});
  std::vector<MessageSocket> idle;
  std::string problem;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(MessageSocket::connect("127.0.0.1", port, 5, problem));
    leader.members.look();
  }
  const auto open = [&](MessageSocket& socket) {
    socket.receive();
    return socket.is_open();
  };
  REQUIRE(wait_until([&] { return std::ranges::count_if(idle, open) == 64; }, 5));
  CHECK_FALSE(idle.front().is_open());
  CHECK(idle.back().is_open());
  Follower follower(elastic(false, port, "host1"));
  REQUIRE(leader.wait_for(2));
  leader.members.end({});
  CHECK(follower.wait().code == 0);
}

TEST_CASE("an elastic run without free descriptors goes on, and accepts nodes when it has some again") {
  const int port = free_port();
  const pid_t leader = ::fork();
  if (leader == 0) {
    rlimit limit{1024, 1024};  // what the leader of an elastic run asks for
    ::setrlimit(RLIMIT_NOFILE, &limit);
    int code = 1;
    try {
      ElasticMembers members(elastic(true, port, "host0"));
      std::vector<int> taken;
      for (int fd = ::dup(2); fd >= 0; fd = ::dup(2)) taken.push_back(fd);
      const auto looks = [&] { return members.look(), members.wait(0.05), members.there() == 2; };
      const bool came = wait_until(looks, 1);
      for (const int fd : taken) ::close(fd);
      code = came ? 2 : wait_until(looks, 20) ? 0 : 3;
      members.end({});
    } catch (const Error&) {
    }
    ::_exit(code);
  }
  Follower follower(elastic(false, port, "host1"));
  CHECK(end_of(leader) == 0);
  CHECK(follower.wait().code == 0);
}

TEST_CASE("a node that finds no leader of an elastic run names --node-rank 0") {
  const int port = free_port();
  Follower follower(elastic(false, port, "host1"), 1s);
  const Ended ended = follower.wait();
  CHECK(ended.code == 4);
  CHECK_THAT(ended.words,
             StartsWith("the node host1: the supervisor of rank 0 did not answer at ") &&
                 ContainsSubstring(": start the same command there with --node-rank 0, or allow more time"));
}

TEST_CASE("a node that cannot start its ranks ends, and the run goes on without it") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=wait"});
  WorkerGroup broken = group_of(elastic(false, port, "host1"));
  broken.worker = "/nowhere/runner-worker";
  Follower follower(elastic(false, port, "host1"), 20s, broken);
  REQUIRE(leader.wait_for(2));
  leader.choose(2);
  const Outcome outcome = leader.attempt();
  CHECK(outcome.regroup);
  CHECK_THAT(leader.event("note", 1)["message"].get<std::string>(),
             StartsWith("the node host1 cannot start: ") && ContainsSubstring("/nowhere/runner-worker"));
  const Ended ended = follower.wait();
  CHECK(ended.code == 4);
  CHECK_THAT(ended.words, ContainsSubstring("/nowhere/runner-worker"));
  CHECK(leader.members.there() == 1);
  CHECK(leader.choose(1) == Changes{"node 1 (host1) was lost"});
  leader.group.arguments = {"*=finish"};
  CHECK(leader.attempt().status == "finished");
}

TEST_CASE("a node that was not started like the leader is turned away, and the run goes on") {
  const int port = free_port();
  ElasticLeader leader(port, {"*=finish"});
  Introduction other = elastic(false, port, "host1");
  other.alike["model"]["dim"] = 32;
  Introduction fixed = introduction(1, 2, 1, port);
  fixed.host = "host2";
  struct Row {
    Introduction self;
    std::string words;
  };
  for (const auto& [self, words] :
       {Row{other, "the node host1 was not started like rank 0: model.dim is 32 there and 64 here"},
        Row{fixed, "was started for a fixed run, rank 0 for an elastic one"},
        Row{elastic(false, port, "host3", 2),
            "the node host3 was started for 1 node x 2 ranks, rank 0 for 1 node x 1 rank"},
        Row{elastic(true, port, "host4"),
            "the node host4 was started with --node-rank 0, which the run has already"}}) {
    Follower follower(self);
    const pid_t pid = follower.pid();
    REQUIRE(wait_until(
        [&] {
          leader.members.look();
          siginfo_t info{};
          ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
          return info.si_pid == pid;
        },
        20));
    const Ended ended = follower.wait();
    CHECK(ended.code == 2);
    CHECK_THAT(ended.words, ContainsSubstring(words));
  }
  CHECK(leader.members.there() == 1);
  leader.choose(1);
  CHECK(leader.attempt().status == "finished");
}
