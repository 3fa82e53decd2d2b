// The supervisor in this process, with fake workers that finish, fail, crash, hang or write garbage.
#include "runner/launch/supervisor.hpp"
#include "runner/launch/stop_signals.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <thread>

#include "runner/base/files.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/shared_resources.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using nlohmann::json;

namespace {

/// Supervises fake workers and records the events.
struct Run {
  TemporaryFolder folder;
  WorkerGroup group;
  SupervisorHooks hooks;
  std::vector<json> events;
  std::vector<std::string> restarts;

  Run(int local_size, std::vector<std::string> behaviours) {
    group.worker = FAKE_WORKER;
    group.arguments = std::move(behaviours);
    group.local_size = group.world_size = local_size;
    group.log_dir = (folder.path / "logs").string();
    group.shm_bytes = 4096;
    hooks.on_event = [this](const json& event) { events.push_back(event); };
    hooks.on_restart = [this](WorkerGroup&, int restart, const std::string& why) {
      restarts.push_back(std::to_string(restart) + ": " + why);
    };
  }
  Outcome go() { return supervise(group, hooks); }
  std::string log(int rank) const { return folder.path / "logs" / ("rank-" + std::to_string(rank) + ".log"); }
  json event(const std::string& kind, int rank) const {
    for (const json& event : events)
      if (event["event"] == kind && event["rank"] == rank) return event;
    return {};
  }
};

}  // namespace

TEST_CASE("the end of the ranks decides status and exit code") {
  struct Row {
    int ranks;
    std::vector<std::string> behaviours;
    const char* status;
    ExitCode code;
    const char* cause;  ///< its first words
  };
  const std::vector<Row> table{
      {2, {"*=finish"}, "finished", ExitCode::done, ""},
      {1, {"*=print-and-exit:3"}, "preempted", ExitCode::preempted, "the workers received a stop signal from outside"},
      {2, {"1=signal:15", "*=wait"}, "preempted", ExitCode::preempted, "stopped by SIGTERM"},
      {2, {"1=fail:usage:x", "*=wait"}, "failed", ExitCode::usage, "rank 1"},
      {2, {"0=fail:environment:x", "*=wait"}, "failed", ExitCode::environment, "rank 0"},
      {2, {"0=fail:error:x", "*=wait"}, "failed", ExitCode::run_failed, "rank 0"},
      {2, {"1=fail:nonfinite:x", "*=wait"}, "failed", ExitCode::run_failed, "rank 1"},
      {2, {"1=fail:oom:x", "*=wait"}, "failed", ExitCode::run_failed, "rank 1"},
      {1, {"*=fail:collective:x"}, "failed", ExitCode::run_failed, "rank 0"},
      {2, {"1=abort", "*=wait"}, "failed", ExitCode::run_failed, "rank 1"},
      {3, {"2=signal:11", "*=wait"}, "failed", ExitCode::run_failed, "rank 2"},
      {2, {"0=print-and-exit:1", "*=wait"}, "failed", ExitCode::run_failed, "rank 0"},
  };
  for (const Row& row : table) {
    Run run(row.ranks, row.behaviours);
    Outcome outcome = run.go();
    INFO(row.behaviours.front() << " -> " << outcome.first_cause);
    CHECK(outcome.status == row.status);
    CHECK(outcome.code == row.code);
    CHECK(outcome.first_cause.starts_with(row.cause));
    CHECK(outcome.restarts == 0);
  }
}

TEST_CASE("a signal that arrives before the workers are started stops them") {
  Run run(2, {"*=wait"});
  StopSignals signals;
  run.hooks.signals = &signals;
  ::raise(SIGTERM);
  Outcome outcome = run.go();
  CHECK(outcome.status == "preempted");
  CHECK(outcome.first_cause == "stopped by SIGTERM");
}

TEST_CASE("the events of all ranks arrive") {
  Run run(2, {"*=finish"});
  run.go();
  CHECK(run.event("finished", 0)["final_loss"] == 0.1);
  CHECK(run.event("finished", 1)["step"] == 3);
}

TEST_CASE("a failed event is the first cause, with its rank") {
  Run run(2, {"1=fail-among-all:error:data file vanished", "*=wait-among-all"});
  CHECK(run.go().first_cause == "rank 1: data file vanished");
  CHECK(run.event("stopping", 0)["step"] == 7);  // the other rank was asked to stop, not killed
}

TEST_CASE("without a failed event, the error has the exit code of the worker and the end of its log") {
  Run run(1, {"*=print-and-exit:7"});
  std::string tail;
  for (int line = 3; line <= 12; ++line) tail += "\nline " + std::to_string(line);
  CHECK(run.go().first_cause == "rank 0 exited with code 7; the end of " + run.log(0) + ":" + tail);
}

TEST_CASE("the end of a log contains only lines of this attempt") {
  Run run(1, {"*=print-and-exit:7"});
  run.go();
  run.group.arguments = {"*=signal:11"};
  CHECK(run.go().first_cause == "rank 0 was killed by signal 11 (SIGSEGV); it wrote nothing to " + run.log(0));
  CHECK(read_file(run.log(0)).starts_with("line 1\n"));  // the lines of the earlier attempt remain in the file
}

TEST_CASE("a dead rank is the first cause, not the peers that report it") {
  for (int round = 0; round < 5; ++round) {
    Run run(3, {"1=die-marked", "*=notice:1"});
    Outcome outcome = run.go();
    CHECK(outcome.first_cause.starts_with("rank 1 was killed by signal 9 (SIGKILL"));
  }
}

TEST_CASE("the earliest failure is the first cause, but never before a failure that caused it") {
  auto failure = [](double seen, int rank, const char* kind) {
    return failure_from_event({{"time", 1.0}, {"rank", rank}, {"kind", kind}, {"message", "m"}}, seen);
  };
  CHECK(first_cause({}) == nullptr);
  CHECK(first_cause({failure(3, 0, "error"), failure(2, 1, "oom"), failure(1, 2, "collective")})->rank == 1);
  CHECK(first_cause({failure(3, 0, "collective"), failure(2, 1, "collective")})->rank == 1);
  CHECK(failure_from_event({{"time", 1.0}, {"rank", 4}, {"message", 5}}, 1).message ==
        "rank 4: failed without a message");
}

TEST_CASE("signals are named, and the out-of-memory killer is named only if it is suspected") {
  auto said = [](int code, int signal, bool oom_suspected) {
    WorkerExit exit;
    exit.code = code;
    exit.signal = signal;
    exit.oom_suspected = oom_suspected;
    exit.log_tail = "end";
    return describe_exit(1, exit, "LOG");
  };
  const std::string tail = "; the end of LOG:\nend";
  CHECK(said(0, SIGKILL, true) == "rank 1 was killed by signal 9 (SIGKILL; out of memory killer?)" + tail);
  CHECK(said(0, SIGKILL, false) == "rank 1 was killed by signal 9 (SIGKILL)" + tail);
  CHECK(said(0, SIGABRT, true) == "rank 1 was killed by signal 6 (SIGABRT)" + tail);
  CHECK(said(5, 0, true) == "rank 1 exited with code 5" + tail);
}

TEST_CASE("a rank that ignores SIGTERM is killed when another fails") {
  Run run(2, {"0=fail:error:first", "1=ignore"});
  Outcome outcome = run.go();
  CHECK(outcome.status == "failed");
  CHECK(outcome.first_cause == "rank 0: first");
}

TEST_CASE("a rank that reports a failure and does not exit is killed") {
  Run run(2, {"1=fail-and-hang", "*=wait"});
  CHECK(run.go().first_cause == "rank 1: out of memory");
}

TEST_CASE("garbage on the pipe becomes notes") {
  Run run(1, {"*=garbage"});
  CHECK(run.go().status == "finished");
  REQUIRE(run.events.size() == 5);
  CHECK(run.events[0]["message"] == "not an event: not json");
  CHECK(run.events[3] == json{{"event", "note"}, {"rank", 0}, {"message", "kept"}, {"time", run.events[3]["time"]}});
  CHECK(run.events[4]["message"] == "not an event: {\"cut");
}

TEST_CASE("every rank gets its placement") {
  Run run(2, {"*=environment"});
  run.group.environment = {{"OMP_NUM_THREADS", "3"}, {"RANK", "overridden"}};
  run.group.device_indices = {4, 2};
  ::setenv("RUNNER_LISTEN_FD", "99", 1);  // as if a supervisor above this one had set it
  run.go();
  ::unsetenv("RUNNER_LISTEN_FD");
  json zero = run.event("note", 0)["environment"], one = run.event("note", 1)["environment"];
  CHECK(zero["RANK"] == "0");
  CHECK(one["RANK"] == "1");
  CHECK(one["LOCAL_RANK"] == "1");
  CHECK(one["WORLD_SIZE"] == "2");
  CHECK(one["LOCAL_WORLD_SIZE"] == "2");
  CHECK(one["NODE_RANK"] == "0");
  CHECK(one["MASTER_ADDR"] == "127.0.0.1");
  CHECK(std::stoi(one["MASTER_PORT"].get<std::string>()) > 0);
  CHECK(one["MASTER_PORT"] == zero["MASTER_PORT"]);
  CHECK(one["OMP_NUM_THREADS"] == "3");
  CHECK(zero["RUNNER_DEVICE_INDEX"] == "4");
  CHECK(one["RUNNER_DEVICE_INDEX"] == "2");
  CHECK(zero.contains("RUNNER_LISTEN_FD"));
  CHECK_FALSE(one.contains("RUNNER_LISTEN_FD"));
  CHECK(zero["RUNNER_SHM_FD"] == one["RUNNER_SHM_FD"]);
  CHECK_FALSE(zero.contains("RUNNER_NODE_ADDRESS"));
}

TEST_CASE("rank 0 accepts connections on the socket that the supervisor made") {
  Run run(3, {"*=meet"});
  CHECK(run.go().status == "finished");
  CHECK(run.event("note", 0)["sum"] == 3);
}

TEST_CASE("a port in use is an environment error that names it") {
  int port = 0;
  Descriptor taken = listen_on("127.0.0.1", port);
  Run run(1, {"*=finish"});
  run.group.master_port = port;
  try {
    run.go();
    FAIL("must throw");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::environment);
    CHECK(std::string(error.what()).starts_with("cannot listen on port " + std::to_string(port) + " of this host"));
  }
}

TEST_CASE("the ranks share one memory segment") {
  Run run(3, {"*=share"});
  CHECK(run.go().status == "finished");
  for (int rank = 0; rank < 3; ++rank) CHECK(run.event("note", rank)["sum"] == 6);
}

TEST_CASE("the group restarts until it has failed max_restarts + 1 times") {
  Run run(2, {"1=fail:error:again", "*=wait"});
  run.group.max_restarts = 2;
  Outcome outcome = run.go();
  CHECK(outcome.status == "failed");
  CHECK(outcome.restarts == 2);
  CHECK(run.restarts == std::vector<std::string>{"1: rank 1: again", "2: rank 1: again"});
}

TEST_CASE("a restart may change the arguments, has new shared memory, and can succeed") {
  Run run(2, {"1=die-marked", "*=wait"});
  run.group.max_restarts = 3;
  run.hooks.on_restart = [](WorkerGroup& group, int, const std::string&) { group.arguments = {"*=share"}; };
  Outcome outcome = run.go();
  CHECK(outcome.status == "finished");
  CHECK(outcome.restarts == 1);
  CHECK(run.event("note", 0)["sum"] == 3);
}

TEST_CASE("errors of usage and non-finite losses are not restarted") {
  for (const char* kind : {"usage", "nonfinite"}) {
    Run run(1, {"*=fail:" + std::string(kind) + ":x"});
    run.group.max_restarts = 5;
    CHECK(run.go().restarts == 0);
  }
}

TEST_CASE("settle() returns after the supervisor's answer, which comes after all earlier events") {
  Run run(1, {"*=settle"});
  std::thread later;
  std::vector<std::string> before;
  auto notes = [&] {
    std::vector<std::string> messages;
    for (const json& event : run.events)
      if (event["event"] == "note") messages.push_back(event["message"]);
    return messages;
  };
  std::atomic<bool> answered = false;
  run.hooks.on_settle = [&](std::function<void()> answer) {
    before = notes();
    later = std::thread([&answered, answer] {
      ::usleep(300'000);
      answered = true;
      answer();
    });
  };
  run.hooks.on_event = [&](const json& event) {
    if (event["event"] == "note" && event["message"] == "after") CHECK(answered);
    run.events.push_back(event);
  };
  CHECK(run.go().status == "finished");
  later.join();
  CHECK(before == std::vector<std::string>{"before"});
  CHECK(notes() == std::vector<std::string>{"before", "after"});
}

TEST_CASE("a supervisor without a ledger answers settle() at once, and a late answer is harmless") {
  Run alone(1, {"*=settle"});
  CHECK(alone.go().status == "finished");
  Run killed(1, {"*=settle"});
  std::function<void()> answer;
  killed.hooks.on_settle = [&](std::function<void()> given) { answer = std::move(given); };
  killed.hooks.on_tick = [&] {
    if (answer) ::kill(::getpid(), SIGTERM);
  };
  killed.group.grace_time = std::chrono::seconds(0);
  CHECK(killed.go().status == "preempted");
  answer();
}

TEST_CASE("a worker that cannot be started is an environment error, and leaves nothing running") {
  Run run(2, {"*=wait"});
  run.group.worker = (run.folder.path / "no-such-worker").string();
  try {
    run.go();
    FAIL("must throw");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::environment);
    CHECK(std::string(error.what()) == "cannot start " + run.group.worker + ": No such file or directory");
  }
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // no child is left, running or zombie
}

TEST_CASE("a hook that throws leaves no worker running") {
  Run run(2, {"*=wait"});
  run.hooks.on_event = [](const json&) { throw environment_error("the ledger's disk is full"); };
  CHECK_THROWS_AS(run.go(), Error);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("the child processes of a worker end with it") {
  Run run(1, {"*=child:0"});
  CHECK(run.go().status == "finished");
  auto child = run.event("note", 0)["child"].get<pid_t>();
  // Only init may reap the child: it is gone, or a zombie.
  std::string state = "gone";
  for (int i = 0; i < 500 && state != "Z" && ::kill(child, 0) == 0; ++i) {
    std::string stat = read_file("/proc/" + std::to_string(child) + "/stat");
    state = stat.substr(stat.rfind(')') + 2, 1);
    ::usleep(2000);
  }
  CHECK((::kill(child, 0) != 0 || state == "Z"));
}

TEST_CASE("ticks come while the workers send no events") {
  Run run(1, {"*=wait"});
  int ticks = 0;
  run.hooks.on_tick = [&] {
    if (++ticks == 4) ::kill(::getpid(), SIGTERM);
  };
  CHECK(run.go().status == "preempted");
  CHECK(ticks >= 4);
}

TEST_CASE("a worker whose process is stopped fails the run, which names its rank") {
  Run run(3, {"1=signal:19", "*=wait"});
  run.group.stopped_limit = std::chrono::milliseconds(600);
  Outcome outcome = run.go();
  CHECK(outcome.status == "failed");
  CHECK(outcome.code == ExitCode::run_failed);
  CHECK_THAT(outcome.first_cause,
             Catch::Matchers::Matches(
                 R"(rank 1: the process \d+ has been stopped for [0-9.]+ m?s \(by SIGSTOP or a similar signal\))"));
  CHECK(run.event("failed", 1)["kind"] == "error");
}

TEST_CASE("a worker that is stopped and continued in time goes on") {
  Run run(1, {"*=stop-for:0.3"});
  run.group.stopped_limit = std::chrono::seconds(5);
  CHECK(run.go().status == "finished");
}

TEST_CASE("the supervisor of many workers raises its limit of open files") {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low{128, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  Run run(80, {"*=finish"});
  Outcome outcome = run.go();
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(outcome.status == "finished");
}
