// Many processes that write to one ledger, and one that is killed while writing.
#include <fcntl.h>
#include <sys/wait.h>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <thread>

#include "runner/base/files.hpp"
#include "support.hpp"

using namespace runner;

TEST_CASE("sixteen processes that start and write at once lose nothing") {
  LedgerFolder folder;
  constexpr int processes = 16;
  constexpr int64_t steps = 100;
  int gate[2];
  REQUIRE(::pipe(gate) == 0);
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(gate[1]);
      char wait;
      if (::read(gate[0], &wait, 1) != 0) ::_exit(9);  // all children start when the parent closes its end
      try {
        Ledger ledger(folder.home(), Ledger::Mode::write);
        const std::string id = ledger.begin_run(new_run(folder, "p" + std::to_string(i)));
        ledger.begin_attempt(id, "start");
        for (int64_t step = 1; step <= steps; ++step) {
          ledger.metrics(id,
                         {{"loss", step, 1.0 / static_cast<double>(step)}, {"own_" + std::to_string(i), step, 0.5}});
          if (step % 10 == 0) ledger.flush();
        }
        ledger.finish_run(id, "finished", 0, "");
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  ::close(gate[0]);
  ::close(gate[1]);
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  Ledger ledger(folder.home(), Ledger::Mode::read);
  const auto runs = ledger.runs();
  REQUIRE(runs.size() == processes);
  for (const auto& run : runs) {
    CHECK(run.status == "finished");
    CHECK(run.steps == steps);
    CHECK(run.final_loss == 0.01);
    CHECK(ledger.points(run.id, "loss").size() == steps);
    CHECK(ledger.points(run.id, "own_" + run.name.substr(1)).size() == steps);
  }
  CHECK(folder.raw().integer("SELECT count(*) FROM metric") == processes * steps * 2);
  CHECK(folder.raw().integer("SELECT count(*) FROM key") == processes + 1);
}

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
