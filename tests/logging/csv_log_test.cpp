// metrics.csv: rows, new columns, and attempts that begin with the ledger's values.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/logging/csv_log.hpp"
#include "runner/logging/loggers.hpp"
#include "tests/logging/logged_run.hpp"

using namespace runner;

using runner::testing::LoggedRun;

TEST_CASE("a step is a row, and a new metric adds a column") {
  LoggedRun logged;
  CsvLog log(logged.folder.path / "new" / "metrics.csv");
  log.begin(logged.attempt());
  log.points(logged.group({{"loss", 1, 0.1}, {"lr", 1, 1e-3}}));
  log.points(logged.group({{"loss", 2, std::nan("")}, {"lr", 2, 5e-324}}));
  CHECK(read_file(log.place()) == "step,loss,lr\n1,0.1,0.001\n2,nan,5e-324\n");
  log.points(logged.group({{"val,\"loss\"", 2, -INFINITY}}));
  log.points(logged.group({{"lr", 3, 1.0 / 3}}));
  CHECK(read_file(log.place()) ==
        "step,loss,lr,\"val,\"\"loss\"\"\"\n1,0.1,0.001,\n2,nan,5e-324,-inf\n3,,0.3333333333333333,\n");
  log.points(logged.group({{"loss", 3, 12345.5}}));
  log.points(logged.group({{"loss", 3, 1}, {"lr", 3, 2}}));  // shorter than before
  log.points(logged.group({{"lr", 4, 0.5}}));
  log.points(logged.group({{"loss", 3, 7}}));  // late: a row of its own
  CHECK(read_file(log.place()).ends_with("-inf\n3,1,2,\n4,,0.5,\n3,7,,\n"));
  CsvLog again(log.place());
  again.begin(logged.attempt(3));
  again.points(logged.group({{"val_loss", 4, 1.5}}));
  CHECK(read_file(log.place()).ends_with("4,,0.5,,1.5\n"));
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
  CHECK(read_file(again.place()) == "step,loss,val_loss\n1,1,\n2,0.5,7\n3,0.3333333333333333,\n4,9,\n");
}
