// Runs of other programs, while other processes use the ledger.
#include "runner/ledger/foreign_runs.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runner/base/clock.hpp"
#include "support.hpp"

using namespace runner;

namespace {

ForeignRun run_of(const std::string& origin, int64_t points) {
  ForeignRun run{.origin = origin, .name = origin};
  run.ended = 1;
  for (const char* metric : {"a", "b", "c", "d"})
    for (int64_t step = 0; step < points / 4; ++step)
      run.points.push_back({metric, step, 1.0 / static_cast<double>(step + 1)});
  return run;
}

}  // namespace

TEST_CASE("a large import locks the ledger only while its rows are copied") {
  LedgerFolder folder;
  { Ledger ledger(folder.home(), Ledger::Mode::write); }
  std::vector<ForeignRun> runs;
  for (const char* origin : {"x", "y"}) runs.push_back(run_of(origin, 300'000));
  std::atomic<bool> done = false;
  double longest = 0;
  std::thread other([&] {
    auto database = folder.raw();
    while (!done) {
      const double begun = steady_seconds();
      database.execute("BEGIN IMMEDIATE; COMMIT");
      longest = std::max(longest, steady_seconds() - begun);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const double begun = steady_seconds();
  add_foreign_runs(folder.home(), "csv", "t.csv", std::move(runs));
  const double took = steady_seconds() - begun;
  done = true;
  other.join();
  INFO(longest << " s of " << took << " s");
  CHECK(longest < took / 2);
  CHECK(folder.raw().integer("SELECT count(*) FROM metric") == 600'000);
  CHECK(folder.raw().text("SELECT group_concat(step || ' ' || min || ' ' || max) FROM (SELECT DISTINCT step, min, max "
                          "FROM metric_last)") == "74999 " + folder.raw().text("SELECT 1.0 / 75000") + " 1.0");
  CHECK(std::distance(fs::directory_iterator(fs::path(folder.home())), {}) <= 5);  // the temporary ledger is gone
  for (const auto& entry : fs::directory_iterator(fs::path(folder.home())))
    CHECK_FALSE(entry.path().filename().string().starts_with(".import"));
}

TEST_CASE("two runs of one origin in an import are refused, and nothing is added") {
  LedgerFolder folder;
  std::vector<ForeignRun> runs{run_of("x", 4), run_of("x", 8)};
  CHECK(error_of([&] { add_foreign_runs(folder.home(), "csv", "t.csv", runs); }) ==
        "2: t.csv has two runs \"x\" (x and x): import them one by one");
  CHECK_FALSE(fs::exists(folder.file()));
}
