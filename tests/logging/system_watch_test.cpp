// The record of the machine's use: readings of a running run reach the ledger, with the processes of its ranks.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <future>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/logging/system_watch.hpp"
#include "tests/logging/logged_run.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using runner::testing::LoggedRun;
using runner::testing::wait_until;

namespace {

/// Ticks until the ledger has `count` readings of a value, for at most 20 s.
std::vector<std::pair<double, double>> wait_for(SystemWatch& watch, LoggedRun& logged, const std::string& name,
                                                size_t count) {
  for (const double deadline = steady_seconds() + 20; steady_seconds() < deadline;) {
    watch.tick();
    logged.ledger.flush();
    const auto names = logged.ledger.system_names(logged.run);
    if (std::ranges::find(names, name) != names.end())
      if (auto curve = logged.ledger.system_curve(logged.run, name); curve.size() >= count) return curve;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

/// A process with memory of its own.
struct SizedChild {
  static constexpr size_t bytes = 64 << 20;
  pid_t pid;
  SizedChild() : pid(::fork()) {
    if (pid != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) ::_exit(1);
    std::memset(memory, 1, bytes);
    while (true) ::pause();
  }
  ~SizedChild() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  SizedChild(const SizedChild&) = delete;
};

}  // namespace

TEST_CASE("the machine's use is recorded while a run goes on") {
  LoggedRun logged;
  SystemWatch watch(logged.ledger, {.every = std::chrono::milliseconds(20), .gpus = {}, .local_ranks = 1});
  watch.tick();  // before the first attempt, nothing is read
  watch.begin(logged.attempt());
  const auto memory = wait_for(watch, logged, "memory/run_bytes", 1);
  REQUIRE_FALSE(memory.empty());
  CHECK(memory[0].second > 0);
  CHECK(wait_for(watch, logged, "cpu/percent", 3).size() >= 3);  // rates follow from the second reading on
  const Outcome finished{.code = ExitCode::done, .status = "finished", .first_cause = ""};
  watch.end({.outcome = finished, .message = "", .measured = {}});
}

TEST_CASE("only ranks on this machine count, and a restart begins with none") {
  LoggedRun logged;
  SystemWatch watch(logged.ledger, {.every = std::chrono::milliseconds(10), .gpus = {}, .local_ranks = 1});
  watch.begin(logged.attempt());
  const double alone = wait_for(watch, logged, "memory/run_bytes", 1).at(0).second;
  const SizedChild child;  // stands for a rank
  const auto ready = [&](int rank) { return nlohmann::json{{"rank", rank}, {"pid", static_cast<int64_t>(child.pid)}}; };
  watch.event("ready", ready(1));  // a rank of another node: its process id means nothing here
  watch.event("step", ready(0));
  CHECK(watch.processes() == std::vector<int64_t>{::getpid()});
  watch.event("ready", ready(0));
  CHECK(watch.processes() == std::vector<int64_t>{::getpid(), child.pid});
  CHECK(wait_until(
      [&] { return wait_for(watch, logged, "memory/run_bytes", 1).back().second > alone + SizedChild::bytes / 2; },
      20));
  watch.begin(logged.attempt());
  CHECK(watch.processes() == std::vector<int64_t>{::getpid()});
}

TEST_CASE("a driver that hangs does not hold up the start, and one that fails is a failure of this listener only") {
  LoggedRun logged;
  std::promise<void> end;
  const auto hang = [ended = end.get_future().share()]() -> std::unique_ptr<SystemReader> {
    ended.wait();
    throw std::runtime_error("the driver is gone");
  };
  SystemWatch watch(logged.ledger,
                    {.every = std::chrono::milliseconds(10), .gpus = {}, .local_ranks = 1, .open = hang});
  const double begun = steady_seconds();
  watch.begin(logged.attempt());
  watch.tick();
  CHECK(steady_seconds() - begun < 5);
  end.set_value();
  std::string problem;
  for (const double deadline = steady_seconds() + 20; problem.empty() && steady_seconds() < deadline;) try {
      watch.tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } catch (const Error& error) {
      problem = error.what();
    }
  CHECK(problem == "this machine cannot be read: the driver is gone");
}
