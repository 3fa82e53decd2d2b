// Readings of the machine: written with the run, read back by name, kept by a resume.
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "runner/base/clock.hpp"
#include "support.hpp"

using namespace runner;

TEST_CASE("readings of the machine come back by name and time, and a resume keeps them") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start");
  const double before = wall_seconds();
  ledger.system_samples(id, {{"cpu/percent", 75}, {"memory/used_bytes", 1e9}});
  ledger.metrics(id, {{"loss", 5, 2.0}});
  ledger.flush();
  ledger.system_samples(id, {{"cpu/percent", 50}, {"broken", std::numeric_limits<double>::quiet_NaN()}});
  ledger.begin_attempt(id, "again", 0);
  ledger.flush();

  const Ledger reader(folder.home(), Ledger::Mode::read);
  CHECK(reader.system_names(id) == std::vector<std::string>{"cpu/percent", "memory/used_bytes"});
  const auto curve = reader.system_curve(id, "cpu/percent");
  REQUIRE(curve.size() == 2);
  CHECK(curve[0].first >= before);
  CHECK(curve[0].second == 75);
  CHECK(curve[1].first > curve[0].first);
  CHECK(curve[1].second == 50);
  CHECK(reader.metric_names(id).empty());  // the loss of step 5 is gone; readings are no metrics
  CHECK(error_of([&] { reader.system_curve(id, "cpu/percen"); }) ==
        "2: run " + id + " has no reading \"cpu/percen\"; did you mean \"cpu/percent\"?");
  CHECK(error_of([&] { reader.system_curve(id, "zzz"); }) ==
        "2: run " + id + " has no reading \"zzz\"; it has cpu/percent, memory/used_bytes");
}

TEST_CASE("a process whose run was resumed elsewhere writes no readings") {
  LedgerFolder folder;
  Ledger first(folder.home(), Ledger::Mode::write);
  const std::string id = first.begin_run(new_run(folder));
  first.begin_attempt(id, "start");
  folder.raw().execute("UPDATE run SET status = 'lost'");
  Ledger second(folder.home(), Ledger::Mode::write);
  second.reopen_run(id, new_run(folder));
  first.system_samples(id, {{"cpu/percent", 75}});
  first.flush();
  CHECK(Ledger(folder.home(), Ledger::Mode::read).system_names(id).empty());
}
