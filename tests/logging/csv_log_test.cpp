// metrics.csv: rows, new columns, and attempts that begin with the ledger's values.
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/logging/csv_log.hpp"
#include "runner/logging/loggers.hpp"
#include "tests/logging/logged_run.hpp"

using namespace runner;

using runner::testing::LoggedRun;

namespace {

/// Until new columns are written, too.
std::string written(CsvLog& log) {
  const Outcome outcome{.code = ExitCode::done, .status = "finished", .first_cause = ""};
  log.end({.outcome = outcome});
  return read_file(log.place());
}

}  // namespace

TEST_CASE("a step is a row, and a new metric adds a column") {
  LoggedRun logged;
  CsvLog log(logged.folder.path / "new" / "metrics.csv");
  log.begin(logged.attempt());
  log.points(logged.group({{"loss", 1, 0.1}, {"lr", 1, 1e-3}}));
  log.points(logged.group({{"loss", 2, std::nan("")}, {"lr", 2, 5e-324}}));
  CHECK(written(log) == "step,loss,lr\n1,0.1,0.001\n2,nan,5e-324\n");
  log.points(logged.group({{"val,\"loss\"", 2, -INFINITY}}));
  log.points(logged.group({{"lr", 3, 1.0 / 3}}));
  CHECK(written(log) == "step,loss,lr,\"val,\"\"loss\"\"\"\n1,0.1,0.001,\n2,nan,5e-324,-inf\n3,,0.3333333333333333,\n");
  log.points(logged.group({{"loss", 3, 12345.5}}));
  log.points(logged.group({{"loss", 3, 1}, {"lr", 3, 2}}));  // shorter than before
  log.points(logged.group({{"lr", 4, 0.5}}));
  log.points(logged.group({{"loss", 3, 7}}));  // late: a row of its own
  CHECK(written(log).ends_with("-inf\n3,1,2,\n4,,0.5,\n3,7,,\n"));
  CsvLog again(log.place());
  again.begin(logged.attempt(3));
  again.points(logged.group({{"val_loss", 4, 1.5}}));
  CHECK(written(again).ends_with("4,,0.5,,1.5\n"));
}

TEST_CASE("many new columns in a long file take little time and few copies of the file") {
  LoggedRun logged;
  CsvLog log(logged.folder.path / "metrics.csv");
  log.begin(logged.attempt());
  const auto add = [&](const std::string& name, int64_t step) {
    log.points({.from = PointGroup::From::hook, .step = step, .points = {{name, step, 1}}, .event = logged.event});
  };
  constexpr int64_t rows = 100'000;
  for (int64_t step = 1; step <= rows; ++step) add("loss", step);
  const auto inode = [&] {
    struct stat status {};
    CHECK(::stat(log.place().c_str(), &status) == 0);
    return status.st_ino;
  };
  int copies = 0;
  auto last = inode();
  const double begun = steady_seconds();
  for (int column = 0; column < 60; ++column) {
    add("layer/" + std::to_string(column), rows);
    copies += std::exchange(last, inode()) != last ? 1 : 0;
  }
  const std::string text = written(log);
  CHECK(steady_seconds() - begun < 30);  // each column took 10 s
  CHECK(copies < 20);
  CHECK(text.starts_with("step,loss,layer/0,layer/1,"));
  CHECK(std::ranges::count(text, '\n') == rows + 1);
  CHECK(std::ranges::count(text, ',') == 61 * (rows + 1));
  std::string ones;
  for (int column = 0; column < 61; ++column) ones += ",1";
  CHECK(text.ends_with("\n" + std::to_string(rows) + ones + "\n"));
}

TEST_CASE("the recorded points of a long run need little memory") {
  LoggedRun logged;
  for (int64_t step = 1; step <= 20'000; ++step) {
    std::vector<MetricPoint> points;
    for (int metric = 0; metric < 10; ++metric)
      points.push_back({"metric/" + std::to_string(metric), step, static_cast<double>(step + metric)});
    logged.ledger.metrics(logged.run, points);
  }
  logged.ledger.flush();
  const int64_t before = peak_resident_bytes();
  int64_t steps = 0, values = 0;
  each_recorded_step(logged.attempt(), [&](int64_t step, const StepValues& row) {
    if (step != ++steps) FAIL(step);
    if (row.at("metric/9") != static_cast<double>(step + 9)) FAIL(step);
    values += std::ssize(row);
  });
  CHECK(steps == 20'000);
  CHECK(values == 200'000);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // they need memory of their own for each byte
  (void)before;
#else
  CHECK(peak_resident_bytes() - before < (24 << 20));
#endif
}

TEST_CASE("an attempt begins with the values of the ledger") {
  LoggedRun logged;
  CsvLog log(logged.folder.path / "metrics.csv");
  log.begin(logged.attempt());
  for (int64_t step = 1; step <= 4; ++step) log.points(logged.group({{"loss", step, 1.0 / static_cast<double>(step)}}));
  log.points(logged.group({{"val_loss", 2, 7}}));
  logged.ledger.begin_attempt(logged.run, "resume", 3);
  CsvLog again(logged.folder.path / "metrics.csv");
  again.begin(logged.attempt(3));
  again.points(logged.group({{"loss", 4, 9}}));
  CHECK(written(again) == "step,loss,val_loss\n1,1,\n2,0.5,7\n3,0.3333333333333333,\n4,9,\n");
}
