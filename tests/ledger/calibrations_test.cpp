// Measurements of machines: the newest of each number of ranks and threads is what is read, for its machine only.
#include "runner/ledger/calibrations.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/support/temporary_folder.hpp"

using namespace runner;

TEST_CASE("the newest calibration of each number of ranks and threads holds, for its machine") {
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
}
