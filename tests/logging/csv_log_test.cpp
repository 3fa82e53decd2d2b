// metrics.csv: rows, new columns, and attempts that begin with the ledger's values.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/logging/csv_log.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;

namespace {

struct LoggedRun {
  TemporaryFolder folder;
  Ledger ledger{(folder.path / "home").string(), Ledger::Mode::write};
  std::string run;
  LoggedRun() {
    NewRun row;
    row.name = "logged";
    row.run_dir_root = (folder.path / "runs").string();
    run = ledger.begin_run(row);
    ledger.begin_attempt(run, "start");
  }
};

}  // namespace

TEST_CASE("a row has the metrics that were recorded together, and a new metric adds a column") {
  LoggedRun logged;
  CsvLog log(logged.folder.path / "new" / "metrics.csv");
  log.begin_attempt(0, logged.ledger, logged.run);
  log.add({{.name = "loss", .step = 1, .value = 0.1}, {.name = "lr", .step = 1, .value = 1e-3}});
  log.add({{.name = "loss", .step = 2, .value = std::nan("")}, {.name = "lr", .step = 2, .value = 5e-324}});
  CHECK(read_file(log.path()) == "step,loss,lr\n1,0.1,0.001\n2,nan,5e-324\n");
  log.add({{.name = "val,\"loss\"", .step = 2, .value = -INFINITY}});
  log.add({{.name = "lr", .step = 3, .value = 1.0 / 3}});
  CHECK(read_file(log.path()) ==
        "step,loss,lr,\"val,\"\"loss\"\"\"\n1,0.1,0.001,\n2,nan,5e-324,\n2,,,-inf\n3,,0.3333333333333333,\n");
}

TEST_CASE("an attempt begins with the values of the ledger") {
  LoggedRun logged;
  std::vector<MetricPoint> points;
  for (int64_t step = 1; step <= 4; ++step)
    points.push_back({.name = "loss", .step = step, .value = 1.0 / static_cast<double>(step)});
  points.push_back({.name = "val_loss", .step = 2, .value = 7});
  CsvLog log(logged.folder.path / "metrics.csv");
  log.begin_attempt(0, logged.ledger, logged.run);
  for (const auto& point : points) log.add({point});
  logged.ledger.metrics(logged.run, points);
  logged.ledger.flush();
  logged.ledger.begin_attempt(logged.run, "resume", 3);
  CsvLog again(logged.folder.path / "metrics.csv");
  again.begin_attempt(3, logged.ledger, logged.run);
  again.add({{.name = "loss", .step = 4, .value = 9}});
  CHECK(read_file(again.path()) == "step,loss,val_loss\n1,1,\n2,0.5,7\n3,0.3333333333333333,\n4,9,\n");
}

TEST_CASE("a log that cannot be written is left out, and the others go on") {
  LoggedRun logged;
  const auto run_dir = logged.folder.path / "run";
  fs::create_directories(run_dir / "metrics.csv");  // a folder is in the way
  MetricLogs logs({"csv", "tensorboard"}, run_dir, "recipe");
  CHECK(logs.paths().size() == 2);
  logs.begin_attempt(0, logged.ledger, logged.run);
  logs.add({{.name = "loss", .step = 1, .value = 1}});
  CHECK(logs.paths() == std::vector<fs::path>{run_dir / "tensorboard"});
}
