// A run in a ledger of its own, as the listeners of a training see it.
#pragma once
#include "runner/logging/run_listener.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner::testing {

struct LoggedRun {
  TemporaryFolder folder;
  std::string home = (folder.path / "home").string();
  Ledger ledger{home, Ledger::Mode::write};
  NewRun row;
  std::string run;
  nlohmann::json event = nlohmann::json::object();

  LoggedRun() {
    row.name = "logged";
    row.run_dir_root = (folder.path / "runs").string();
    row.resolved = "a = 1";
    run = ledger.begin_run(row);
    ledger.begin_attempt(run, "start");
  }
  AttemptStart attempt(int64_t from_step = 0) const {
    return {.home = home,
            .run = run,
            .folder = folder.path,
            .row = row,
            .reason = "start",
            .from_step = from_step,
            .ledger = ledger};
  }
  /// Points of one step, recorded together. They go to the ledger, too, which has them at once.
  PointGroup group(std::vector<MetricPoint> points) {
    ledger.metrics(run, points);
    ledger.flush();
    return {.from = PointGroup::From::step, .step = points[0].step, .points = std::move(points), .event = event};
  }
};

}  // namespace runner::testing
