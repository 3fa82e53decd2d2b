// Stored measurements of machines: reading gives the newest for each number of ranks and threads of a machine. Also
// runs to learn from.
#include "runner/ledger/calibrations.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/ledger/support.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;

TEST_CASE("the newest calibration of each number of ranks and threads is read, for its machine only") {
  TemporaryFolder folder;
  std::string home = folder.path.string();
  CHECK(calibrations(home, "here").empty());
  keep_calibration(home, {1, "here", 2, 1, "old", nlohmann::json::array({1, 2})});
  keep_calibration(home, {3, "here", 2, 1, "new", nlohmann::json::array({3})});
  keep_calibration(home, {2, "here", 1, 2, "old", nlohmann::json::array({4})});
  keep_calibration(home, {9, "elsewhere", 2, 1, "new", nlohmann::json::array({5})});
  auto rows = calibrations(home, "here");
  REQUIRE(rows.size() == 2);
  CHECK((rows[0].ranks == 1 && rows[0].threads == 2 && rows[0].points == nlohmann::json::array({4})));
  CHECK((rows[1].ranks == 2 && rows[1].time == 3 && rows[1].build_id == "new" &&
         rows[1].points == nlohmann::json::array({3})));
  CHECK((rows[0].disturbed.empty() && rows[1].disturbed.empty()));
}

TEST_CASE("a disturbed calibration replaces only other disturbed ones") {
  TemporaryFolder folder;
  std::string home = folder.path.string();
  const auto none = nlohmann::json::array();
  keep_calibration(home, {1, "here", 2, 1, "build", nlohmann::json::array({1})});
  keep_calibration(home, {2, "here", 2, 1, "build", none, "others computed"});
  keep_calibration(home, {3, "here", 1, 2, "build", none, "others computed"});
  keep_calibration(home, {4, "here", 1, 2, "build", none, "it became slower"});
  auto rows = calibrations(home, "here");
  REQUIRE(rows.size() == 2);
  CHECK((rows[0].ranks == 2 && rows[0].time == 1 && rows[0].disturbed.empty()));
  CHECK((rows[1].ranks == 1 && rows[1].time == 4 && rows[1].disturbed == "it became slower"));
}

TEST_CASE("only runs with measured steps are found, the newest first") {
  LedgerFolder folder;
  CHECK(timed_runs(folder.home(), 10).empty());
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    auto run = [&](nlohmann::json predicted, nlohmann::json measured) {
      const std::string id = ledger.begin_run(new_run(folder));
      ledger.annotate(id, "predicted", predicted);
      ledger.annotate(id, "measured", measured);
      ledger.finish_run(id, "finished", 0, "");
    };
    run({{"step", {{"load", 1}}}}, {{"step_seconds", 0.25}, {"step_seconds_spread", 0.02}});
    run({{"step_seconds", 0.5}}, {{"step_seconds", 0.25}, {"step_seconds_spread", 0.02}});
    run({{"step", {{"load", 2}}}}, {{"step_seconds", 0.25}});
    run({{"step", {{"load", 3}}}}, nullptr);
    run({{"step", {{"load", 4}}}}, {{"step_seconds", 2}, {"step_seconds_spread", 0}, {"lost_share", 0.5}});
  }
  auto runs = timed_runs(folder.home(), 10);
  REQUIRE(runs.size() == 2);
  CHECK((runs[0].step.at("load") == 4 && runs[0].seconds == 2 && runs[0].spread == 0 && runs[0].lost == 0.5));
  CHECK((runs[1].step.at("load") == 1 && runs[1].seconds == 0.25 && runs[1].spread == 0.02 && runs[1].lost == 0));
  CHECK(timed_runs(folder.home(), 1).size() == 1);
}
