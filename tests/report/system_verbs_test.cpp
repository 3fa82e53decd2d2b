// Readings of the machine in `runner show`, `metrics` and `plot`.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "../ledger/support.hpp"
#include "verb.hpp"

namespace runner {
Action setup_show(CLI::App& app);
Action setup_metrics(CLI::App& app);
Action setup_plot(CLI::App& app);
}  // namespace runner

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// A run with a loss and readings: two attempts of 100 s and 60 s, with a pause of 900 s between. A second run has no readings.
struct ReadRun {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  Variable locale{"LC_ALL", "C"};
  std::string id;

  ReadRun() {
    {
      Ledger ledger(folder.home(), Ledger::Mode::write);
      const std::string other = ledger.begin_run(new_run(folder, "other"));
      ledger.begin_attempt(other, "start");
      ledger.metrics(other, {{"loss", 1, 3.0}});
      ledger.finish_run(other, "finished", 0, "");
      id = ledger.begin_run(new_run(folder, "read"));
      ledger.begin_attempt(id, "start");
      ledger.begin_attempt(id, "again", 0);
      ledger.metrics(id, {{"loss", 1, 2.0}, {"seconds", 1, 12}});
      ledger.finish_run(id, "finished", 0, "");
    }
    auto file = folder.raw();
    constexpr double start = 1.75e9;
    file.run("UPDATE attempt SET started = ?, ended = ? WHERE number = 1 AND run = 2", start, start + 100);
    file.run("UPDATE attempt SET started = ?, ended = ? WHERE number = 2", start + 1000, start + 1060);
    const auto read = [&](const char* name, std::vector<std::pair<double, double>> values) {
      file.run("INSERT INTO key (name) VALUES (?)", name);
      for (const auto& [time, value] : values)
        file.run("INSERT INTO system_sample SELECT 2, key, ?, ? FROM key WHERE name = ?", start + time, value, name);
    };
    read("cpu/percent", {{10, 20}, {50, 90}, {1010, 40}});
    read("cpu/run_percent", {{50, 180}, {1010, 80}});
    read("memory/run_bytes", {{10, 1 << 30}, {50, 3 << 29}, {1010, 1 << 30}});
    read("disk/run_write_bytes_per_s", {{50, 2048}, {1010, 0}});
    read("gpu/0/utilization_percent", {{10, 0}, {50, 99}, {1010, 51}});
    read("gpu/0/power_watts", {{10, 70.5}, {50, 310}, {1010, 250}});
    read("gpu/0/temperature_celsius", {{10, 40}, {50, 62}, {1010, 60}});
    read("gpu/0/clock_mhz", {{10, 210}, {50, 1410}, {1010, 1410}});
    read("gpu/0/throttled", {{10, 0}, {50, 1}, {1010, 0}});
  }
};

}  // namespace

TEST_CASE("show sums the readings of the machine up") {
  ReadRun run;
  CHECK_THAT(run_verb(setup_show, "read").out,
             ContainsSubstring("\nsystem (3 readings)\n"
                               "                                      mean     least        peak\n"
                               "  cpu/percent                         50 %      20 %        90 %\n"
                               "  cpu/run_percent                    130 %      80 %       180 %\n"
                               "  disk/run_write_bytes_per_s    1.00 KiB/s     0 B/s  2.00 KiB/s\n"
                               "  gpu/0/clock_mhz                 1010 MHz   210 MHz    1410 MHz\n"
                               "  gpu/0/power_watts                  210 W      70 W       310 W\n"
                               "  gpu/0/temperature_celsius           54 C      40 C        62 C\n"
                               "  gpu/0/throttled, of the time        33 %\n"
                               "  gpu/0/utilization_percent           50 %       0 %        99 %\n"
                               "  memory/run_bytes                1.17 GiB  1.00 GiB    1.50 GiB\n"));
  CHECK(run_verb(setup_show, "other").out.find("system") == std::string::npos);
  const json shown = json::parse(run_verb(setup_show, "read --json").out);
  CHECK(shown["system"]["gpu/0/power_watts"] ==
        json{{"count", 3}, {"mean", 210.16666666666666}, {"min", 70.5}, {"max", 310.0}});
  CHECK(json::parse(run_verb(setup_show, "other --json").out)["system"] == json::object());
}

TEST_CASE("metrics prints readings over the seconds of all attempts, without pauses") {
  ReadRun run;
  CHECK(run_verb(setup_metrics, "read --name cpu/percent --name cpu/run_percent").out ==
        "seconds  cpu/percent  cpu/run_percent\n"
        "     10           20\n"
        "     50           90              180\n"
        "    110           40               80\n");
  CHECK(run_verb(setup_metrics, "read --system --csv --name gpu/0/power_watts --tail 2").out ==
        "seconds,gpu/0/power_watts\n50,310\n110,250\n");
  CHECK(run_verb(setup_metrics, "read --system --csv --name gpu/0/power_watts --every 2").out ==
        "seconds,gpu/0/power_watts\n50,310\n110,250\n");
  CHECK(run_verb(setup_metrics, "read --name gpu/0/clock_mhz --json").out ==
        "{\"name\":\"gpu/0/clock_mhz\",\"points\":[[10.0,210.0],[50.0,1410.0],[110.0,1410.0]],\"run\":\"" + run.id +
            "\",\"schema\":1,\"x\":\"seconds\"}\n");
  const json all = json::parse(run_verb(setup_metrics, "read --json").out);
  CHECK(all["metrics"].size() == 2);
  CHECK(all["system"].size() == 9);
  CHECK(all["system"]["cpu/run_percent"] == json::parse("[[50.0, 180.0], [110.0, 80.0]]"));
  const json readings = json::parse(run_verb(setup_metrics, "read --json --system").out);
  CHECK(readings["system"] == all["system"]);
  CHECK_FALSE(readings.contains("metrics"));
  CHECK(run_verb(setup_metrics, "other --json").out.find("system") == std::string::npos);
  CHECK(run_verb(setup_metrics, "read other --system --csv --name cpu/percent").out ==
        "run,name,seconds,cpu/percent\n" + run.id + ",read,10,20\n" + run.id + ",read,50,90\n" + run.id +
            ",read,110,40\n");
}

TEST_CASE("plot draws readings over seconds") {
  ReadRun run;
  CHECK(run_verb(setup_plot, "read --metric gpu/0/power_watts --width 30 --height 4").out ==
        run_verb(setup_plot, "read --metric gpu/0/power_watts --x seconds --width 30 --height 4").out);
  CHECK_THAT(run_verb(setup_plot, "read --metric gpu/0/power_watts --width 40 --height 4").out,
             ContainsSubstring("gpu/0/power_watts\n") && ContainsSubstring(" seconds\n"));
  CHECK_THAT(run_verb(setup_plot, "read --metric cpu/percent --metric loss --x seconds --width 40").out,
             ContainsSubstring("cpu/percent\n") && ContainsSubstring("loss\n"));
}

TEST_CASE("readings and metrics that do not fit together, and names that are neither, are refused") {
  ReadRun run;
  CHECK(error_of([] { run_verb(setup_metrics, "read --name loss --name cpu/percent"); }) ==
        "2: cpu/percent is a reading of the machine over seconds, and loss a metric over steps: ask for them one after "
        "the other");
  CHECK(error_of([] { run_verb(setup_plot, "read --metric cpu/percent --x step"); }) ==
        "2: cpu/percent is a reading of the machine over time, so it is drawn with --x seconds, not step");
  CHECK(error_of([] { run_verb(setup_metrics, "other --system"); }).ends_with(" has no readings of the machine yet"));
  CHECK(error_of([] { run_verb(setup_metrics, "read --name cpu/percen"); }) ==
        "2: run " + run.id + " has no metric \"cpu/percen\": did you mean \"cpu/percent\"?; it has loss, seconds");
  CHECK(
      error_of([] { run_verb(setup_plot, "read --metric gpu/1/clock"); })
          .ends_with(" has no metric \"gpu/1/clock\"; it has loss, seconds, and readings of the machine: cpu/percent, "
                     "cpu/run_percent, disk/run_write_bytes_per_s, gpu/0/clock_mhz, gpu/0/power_watts, "
                     "gpu/0/temperature_celsius, gpu/0/throttled, gpu/0/utilization_percent, memory/run_bytes"));
  CHECK(error_of([] { run_verb(setup_metrics, "read --system --name gpu/0/power_wats"); }) ==
        "2: run " + run.id + " has no reading \"gpu/0/power_wats\"; did you mean \"gpu/0/power_watts\"?");
}
