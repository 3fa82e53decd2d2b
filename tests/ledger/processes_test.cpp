// Many processes that write to one ledger, and one that is killed while writing.
#include <fcntl.h>
#include <sys/wait.h>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <map>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "support.hpp"

using namespace runner;

namespace {

/// One of many processes: trains for `seconds` as fast as the ledger takes its points, and lists the runs now and then.
/// Returns the last step.
int64_t write_for(const LedgerFolder& folder, int number, double seconds) {
  const std::string own = std::to_string(number);
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder, "p" + own));
  ledger.begin_attempt(id, "start");
  const double end = steady_seconds() + seconds;
  int64_t step = 0;
  do {
    ++step;
    ledger.metrics(id, {{"loss", step, 1.0 / static_cast<double>(step)}, {"own_" + own, step, 0.5}});
    if (step % 10 == 0) ledger.flush();
    if (step % 25 == 0) ledger.event(id, "note", {{"step", step}});
    if (step % 40 == number % 40) Ledger(folder.home(), Ledger::Mode::read).runs();
    if (step % 50 == 0) ledger.edit({id}, {.added_tags = {"t" + std::to_string(step)}});
  } while (steady_seconds() < end || step < 100);
  ledger.finish_run(id, "finished", 0, "");
  return step;
}

/// Starts all processes at the same time and checks that no row is missing and that none of them printed anything.
void write_together(int processes, double seconds) {
  LedgerFolder folder;
  int gate[2], results[2];
  REQUIRE(::pipe(gate) == 0);
  REQUIRE(::pipe(results) == 0);
  const fs::path messages = folder.path / "messages";
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(gate[1]);
      ::dup2(::open(messages.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
      char wait;
      if (::read(gate[0], &wait, 1) != 0) ::_exit(9);  // all children start when the parent closes its end
      try {
        const int64_t result[] = {i, write_for(folder, i, seconds)};
        if (::write(results[1], result, sizeof result) != sizeof result) ::_exit(2);
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const int end : {gate[0], gate[1], results[1]}) ::close(end);
  std::map<std::string, int64_t> steps;
  for (int64_t result[2]; ::read(results[0], result, sizeof result) == sizeof result;)
    steps["p" + std::to_string(result[0])] = result[1];
  ::close(results[0]);
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  CHECK(read_file(messages) == "");

  const Ledger ledger(folder.home(), Ledger::Mode::read);
  const auto runs = ledger.runs();
  REQUIRE(std::ssize(runs) == processes);
  int64_t total = 0, events = 0;
  for (const auto& run : runs) {
    const int64_t last = steps.at(run.name);
    total += last;
    events += last / 25;
    CHECK(run.status == "finished");
    CHECK(run.steps == last);
    CHECK(run.final_loss == 1.0 / static_cast<double>(last));
    CHECK(std::ssize(run.tags) == 2 + last / 50);
    CHECK(std::ssize(ledger.points(run.id, "loss")) == last);
    CHECK(std::ssize(ledger.points(run.id, "own_" + run.name.substr(1))) == last);
  }
  CHECK(folder.raw().integer("SELECT count(*) FROM metric") == 2 * total);
  CHECK(folder.raw().integer("SELECT count(*) FROM event") == events);
  CHECK(folder.raw().integer("SELECT count(*) FROM key") == processes + 1);
  CHECK(folder.raw().text("PRAGMA integrity_check") == "ok");
}

}  // namespace

TEST_CASE("expectation 11: 32 processes write one ledger, none is refused and no row is lost") {
  write_together(32, 2);
}

TEST_CASE("expectation 11: 32 processes write one ledger for 60 s", "[.nightly]") { write_together(32, 60); }

TEST_CASE("SIGKILL loses only uncommitted data, and leaves a correct file and a lost run") {
  LedgerFolder folder;
  int reports[2];
  REQUIRE(::pipe(reports) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(reports[0]);
    try {
      Ledger ledger(folder.home(), Ledger::Mode::write);
      const std::string id = ledger.begin_run(new_run(folder));
      ledger.begin_attempt(id, "start");
      for (int64_t step = 1;; ++step) {
        ledger.metrics(id, {{"loss", step, static_cast<double>(step)}, {"lr", step, 1e-3}});
        if (step % 7 != 0) continue;
        ledger.flush();
        if (::write(reports[1], &step, sizeof step) != sizeof step) break;
      }
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
    }
    ::_exit(1);
  }
  ::close(reports[1]);
  int64_t committed = 0, report = 0;
  while (committed < 700 && ::read(reports[0], &report, sizeof report) == sizeof report) committed = report;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (::read(reports[0], &report, sizeof report) == sizeof report) committed = report;
  ::close(reports[0]);
  REQUIRE(committed >= 700);

  Ledger ledger(folder.home(), Ledger::Mode::read);
  CHECK(folder.raw().text("PRAGMA integrity_check") == "ok");
  REQUIRE(ledger.runs().size() == 1);
  const RunRow row = ledger.runs()[0];
  CHECK(row.status == "lost");
  CHECK(row.ended >= row.started);
  const auto points = ledger.points(row.id, "loss");
  REQUIRE(static_cast<int64_t>(points.size()) >= committed);
  for (size_t i = 0; i < points.size(); ++i)
    REQUIRE(points[i] == std::pair<int64_t, double>(i + 1, static_cast<double>(i + 1)));
  CHECK(ledger.points(row.id, "lr").size() == points.size());  // all points of a step are committed together
  CHECK(row.steps == static_cast<int64_t>(points.size()));
  CHECK(row.final_loss == static_cast<double>(points.size()));
}

TEST_CASE("queued data are committed without a flush") {
  LedgerFolder folder;
  Ledger writer(folder.home(), Ledger::Mode::write), reader(folder.home(), Ledger::Mode::read);
  const std::string id = writer.begin_run(new_run(folder));
  writer.metrics(id, {{"loss", 1, 1.0}});
  for (int i = 0; i < 1000 && reader.metric_names(id).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(reader.points(id, "loss").size() == 1);
}

TEST_CASE("the destructor of a ledger commits queued data") {
  LedgerFolder folder;
  std::string id;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    id = ledger.begin_run(new_run(folder));
    for (int64_t step = 1; step <= 1000; ++step) ledger.metrics(id, {{"loss", step, 1.0}});
  }
  CHECK(Ledger(folder.home(), Ledger::Mode::read).points(id, "loss").size() == 1000);
}
