// Signals: to a supervisor in this process, to one on a pseudo-terminal, and a SIGKILL that leaves no worker.
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "runner/launch/supervisor.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using nlohmann::json;
using runner::testing::wait_until;

namespace {

/// Supervises fake workers in this process and sends `signals` to it. The first signal is sent when all ranks are
/// ready. The delay before each further signal is long enough to count as a second Ctrl-C.
Outcome run_with_signals(int ranks, std::vector<std::string> behaviours, std::vector<int> signals,
                         int grace_seconds = 30, int64_t max_restarts = 0) {
  TemporaryFolder folder;
  WorkerGroup group;
  group.worker = FAKE_WORKER;
  group.arguments = std::move(behaviours);
  group.local_size = group.world_size = ranks;
  group.log_dir = folder.path.string();
  group.grace_time = std::chrono::seconds(grace_seconds);
  group.max_restarts = max_restarts;
  int ready = 0;
  size_t sent = 0;
  auto next_at = std::chrono::steady_clock::now();
  SupervisorHooks hooks;
  hooks.on_event = [&](const json& event) { ready += event["event"] == "ready" || event["event"] == "starting"; };
  hooks.on_tick = [&] {
    if (ready < ranks || sent == signals.size() || std::chrono::steady_clock::now() < next_at) return;
    next_at = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
    ::kill(::getpid(), signals[sent++]);
  };
  return supervise(group, hooks);
}

/// The state letter of a process; "" if it does not exist.
std::string process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  size_t name_end = line.rfind(')');
  return name_end == std::string::npos ? "" : line.substr(name_end + 2, 1);
}

/// supervise_main as the foreground job of a pseudo-terminal.
struct OnTerminal {
  TemporaryFolder folder;
  pid_t pid = -1;
  int terminal = -1;
  std::string output;

  OnTerminal(int ranks, const std::string& behaviour) {
    std::string count = std::to_string(ranks), logs = folder.path.string();
    pid = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid == 0) {
      ::execl(SUPERVISE_MAIN, SUPERVISE_MAIN, FAKE_WORKER, logs.c_str(), count.c_str(), "30", behaviour.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::fcntl(terminal, F_SETFL, O_NONBLOCK);
  }
  ~OnTerminal() {
    ::close(terminal);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  void type(char key) const { REQUIRE(::write(terminal, &key, 1) == 1); }

  /// The process ids from the `ready` events of `ranks` workers.
  std::vector<pid_t> worker_pids(size_t ranks) {
    std::vector<pid_t> pids;
    REQUIRE(wait_until(
        [&] {
          char buffer[4096];
          ssize_t n = ::read(terminal, buffer, sizeof buffer);
          if (n > 0) output.append(buffer, static_cast<size_t>(n));
          pids.clear();
          for (size_t at = 0; (at = output.find("\"pid\":", at)) != std::string::npos; ++at)
            pids.push_back(std::atoi(&output[at + 6]));
          return pids.size() == ranks;
        },
        10));
    return pids;
  }
  int wait_status() const {
    int status = 0;
    REQUIRE(wait_until(
        [&] {
          char buffer[4096];
          while (::read(terminal, buffer, sizeof buffer) > 0) {
          }
          return ::waitpid(pid, &status, WNOHANG) == pid;
        },
        10));
    return status;
  }
};

}  // namespace

TEST_CASE("after SIGINT, SIGTERM and SIGHUP the workers write a checkpoint, and the outcome names the signal") {
  Outcome interrupted = run_with_signals(2, {"*=wait"}, {SIGINT});
  CHECK(interrupted.status == "interrupted");
  CHECK(interrupted.code == ExitCode::interrupted);
  CHECK(interrupted.first_cause == "stopped by SIGINT (Ctrl-C)");
  for (int signal : {SIGTERM, SIGHUP}) {
    Outcome preempted = run_with_signals(2, {"*=wait"}, {signal});
    CHECK(preempted.status == "preempted");
    CHECK(preempted.code == ExitCode::preempted);
    CHECK(preempted.first_cause == fmt::format("stopped by {}", signal == SIGTERM ? "SIGTERM" : "SIGHUP"));
  }
}

TEST_CASE("workers that do not stop within the grace time are killed") {
  Outcome outcome = run_with_signals(2, {"1=ignore", "*=wait"}, {SIGTERM}, 1);
  CHECK(outcome.status == "preempted");
  CHECK(outcome.code == ExitCode::preempted);
  CHECK(outcome.first_cause == "killed rank 1, still running 1s after the signal (grace_time)");
}

TEST_CASE("a second Ctrl-C kills at once") {
  Outcome outcome = run_with_signals(2, {"*=ignore"}, {SIGINT, SIGINT}, 20);
  CHECK(outcome.status == "interrupted");
  CHECK(outcome.code == ExitCode::interrupted);
  CHECK(outcome.first_cause == "killed ranks 0, 1 at a second Ctrl-C");
}

TEST_CASE("a second SIGTERM does not cut the grace time short") {
  Outcome outcome = run_with_signals(1, {"*=ignore"}, {SIGTERM, SIGTERM}, 2);
  CHECK(outcome.first_cause == "killed rank 0, still running 2s after the signal (grace_time)");
}

TEST_CASE("a run that ends by itself after the signal is finished") {
  CHECK(run_with_signals(2, {"*=finish-at-stop"}, {SIGTERM}).status == "finished");
}

TEST_CASE("a worker without a handler that dies of the SIGTERM is not a failure") {
  CHECK(run_with_signals(2, {"1=wait-unprepared", "*=wait"}, {SIGINT}).status == "interrupted");
}

TEST_CASE("ranks that wait for one that was stopped while it started do not wait for the grace time") {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run_with_signals(2, {"1=starting", "*=ignore"}, {SIGTERM}, 600);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  CHECK(outcome.status == "preempted");
  CHECK(outcome.first_cause == "killed rank 0, waiting for rank 1, which was stopped while it started");
}

TEST_CASE("a rank that was ready and dies of the SIGTERM leaves the others their grace time") {
  const Outcome outcome = run_with_signals(2, {"1=wait-unprepared", "*=ignore"}, {SIGTERM}, 5);
  CHECK(outcome.first_cause == "killed rank 0, still running 5s after the signal (grace_time)");
}

TEST_CASE("a checkpoint that fails while stopping is a failure without a restart") {
  Outcome outcome = run_with_signals(2, {"0=fail-at-stop", "*=wait"}, {SIGINT}, 30, 3);
  CHECK(outcome.status == "failed");
  CHECK(outcome.code == ExitCode::environment);
  CHECK(outcome.first_cause == "rank 0: no space left for the checkpoint");
  CHECK(outcome.restarts == 0);
}

TEST_CASE("signal handlers are restored, and an ignored SIGINT stays ignored") {
  struct sigaction mine {
  }, after{};
  mine.sa_handler = [](int) {};
  ::sigaction(SIGTERM, &mine, nullptr);
  ::signal(SIGINT, SIG_IGN);
  bool sent = false;
  TemporaryFolder folder;
  WorkerGroup group;
  group.worker = FAKE_WORKER;
  group.arguments = {"*=wait"};
  group.log_dir = folder.path.string();
  SupervisorHooks hooks;
  hooks.on_tick = [&] {
    ::kill(::getpid(), sent ? SIGTERM : SIGINT);
    sent = true;
  };
  CHECK(supervise(group, hooks).status == "preempted");
  ::sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == mine.sa_handler);
  ::sigaction(SIGINT, nullptr, &after);
  CHECK(after.sa_handler == SIG_IGN);
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
}

TEST_CASE("Ctrl-C on a terminal reaches only the supervisor, which stops the workers in order") {
  OnTerminal job(2, "*=wait");
  job.worker_pids(2);
  job.type('\x03');
  int status = job.wait_status();
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);  // if the SIGINT had killed the workers, the code would be 1
}

TEST_CASE("Ctrl-Z also stops the workers, and they continue with the supervisor") {
  OnTerminal job(2, "*=wait");
  auto workers = job.worker_pids(2);
  ::kill(job.pid, SIGTSTP);  // a shell sends it for Ctrl-Z; there is no shell here
  for (pid_t pid : workers) CHECK(wait_until([&] { return process_state(pid) == "T"; }, 10));
  CHECK(wait_until([&] { return process_state(job.pid) == "T"; }, 10));
  ::kill(job.pid, SIGCONT);
  for (pid_t pid : workers) CHECK(wait_until([&] { return process_state(pid) != "T"; }, 10));
  ::kill(job.pid, SIGTERM);
  CHECK(WEXITSTATUS(job.wait_status()) == 3);
}

TEST_CASE("no worker survives a SIGKILL of the supervisor") {
  OnTerminal job(3, "*=ignore");
  auto workers = job.worker_pids(3);
  ::kill(job.pid, SIGKILL);
  CHECK(WIFSIGNALED(job.wait_status()));
  for (pid_t pid : workers)
    CHECK(wait_until(
        [&] {
          std::string state = process_state(pid);
          return state.empty() || state == "Z";  // init has not reaped the zombie yet
        },
        10));
}
