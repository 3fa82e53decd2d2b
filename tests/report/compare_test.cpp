// runner compare and plot, and show and metrics with several runs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "../ledger/support.hpp"
#include "runner/base/files.hpp"
#include "runner/report/comparison.hpp"
#include "verb.hpp"

namespace runner {
Action setup_archive(CLI::App& app);
Action setup_compare(CLI::App& app);
Action setup_metrics(CLI::App& app);
Action setup_note(CLI::App& app);
Action setup_plot(CLI::App& app);
Action setup_rename(CLI::App& app);
Action setup_rm(CLI::App& app);
Action setup_show(CLI::App& app);
}  // namespace runner

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using nlohmann::json;

namespace {

/// Four runs "a0" to "a3" with learning rates 0.1 and 0.2 and seeds 1 and 2; the last loss of run i is 1, 2, 4, NaN.
struct Sweep {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  Variable locale{"LC_ALL", "C"};
  Variable colours{"NO_COLOR", "1"};
  std::vector<std::string> ids;
  Sweep() {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const double last[] = {1, 2, 4, std::nan("")};
    for (int i = 0; i < 4; ++i) {
      NewRun run = new_run(folder, "a" + std::to_string(i));
      run.config = {{"run", {{"seed", 1 + i % 2}, {"name", run.name}}},
                    {"optimizer", {{"lr", i < 2 ? 0.1 : 0.2}, {"name", "adamw"}}},
                    {"model", {{"dim", 64}}}};
      run.tags = {i < 2 ? "low" : "high"};
      const std::string id = ledger.begin_run(run);
      ids.push_back(id);
      ledger.begin_attempt(id, "start");
      ledger.metrics(
          id,
          {{"loss", 1, 8.0}, {"loss", 2, 0.5 * last[i]}, {"loss", 3, last[i]}, {"tokens", 1, 100}, {"tokens", 3, 300}});
      ledger.annotate(id, "predicted", {{"memory_bytes_per_rank", 1 << 30}});
      ledger.annotate(id, "measured", {{"memory_bytes_per_rank", 1 << 29}});
      ledger.finish_run(id, "finished", 0, "");
    }
    ledger.flush();
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string id = "20261121-06000" + std::to_string(i) + "-aaa" + std::to_string(i + 2);
      folder.raw().run("UPDATE run SET id = ? WHERE id = ?", id, ids[i]);
      ids[i] = id;
    }
  }
};

}  // namespace

TEST_CASE("expectation 24: compare shows the keys in which runs differ, the best value and sparklines") {
  Sweep sweep;
  CHECK(run_verb(setup_compare, "a0 a1 a2 a3 --metric loss").out ==
        "RUN      STATUS     lr  seed  STEPS   loss  loss by step\n"
        "a0 aaa2  finished  0.1     1      3    1 *  #__\n"
        "a1 aaa3  finished  0.1     2      3    2    #_.\n"
        "a2 aaa4  finished  0.2     1      3    4    #_-\n"
        "a3 aaa5  finished  0.2     2      3  nan    +\n");
  CHECK(run_verb(setup_compare, "tag:high a0 --best loss --sort -lr").out ==
        "RUN      STATUS     lr  seed  STEPS  best loss  loss by step\n"
        "a2 aaa4  finished  0.2     1      3        2    #_-\n"
        "a3 aaa5  finished  0.2     2      3        8    +\n"
        "a0 aaa2  finished  0.1     1      3      0.5 *  #__\n");
}

TEST_CASE("expectation 24: compare groups runs by a key, with mean, standard deviation and count") {
  Sweep sweep;
  CHECK(run_verb(setup_compare, "a0 a1 a2 a3 --metric loss --group-by lr").out ==
        " lr  RUNS  loss: mean    loss: std  loss: best  loss by step\n"
        "0.1     2         1.5  +- 0.707107         1 *  #_.\n"
        "0.2     2           4            -         4    +\n");
  const json all = json::parse(run_verb(setup_compare, "a0 a1 a2 a3 --json --group-by lr --metric loss").out);
  CHECK(all["keys"] == json{"optimizer.lr"});
  CHECK(all["groups"][0]["runs"] == json{sweep.ids[0], sweep.ids[1]});
  CHECK(all["groups"][0]["metrics"]["loss"] ==
        json{{"count", 2}, {"mean", 1.5}, {"std", std::sqrt(0.5)}, {"best", 1.0}});
  CHECK(all["groups"][1]["metrics"]["loss"] == json{{"count", 1}, {"mean", 4.0}, {"std", nullptr}, {"best", 4.0}});
  CHECK(all["best"] == json{{"id", sweep.ids[0]}, {"metric", "loss"}});
}

TEST_CASE("the best value that compare shows is finite") {
  Sweep sweep;
  {
    Ledger ledger(sweep.folder.home(), Ledger::Mode::write);
    const std::string id = ledger.begin_run(new_run(sweep.folder, "a4"));
    ledger.begin_attempt(id, "start");
    ledger.metrics(id, {{"loss", 1, 0.25}, {"loss", 2, -std::numeric_limits<double>::infinity()}});
    ledger.finish_run(id, "finished", 0, "");
  }
  const json all = json::parse(run_verb(setup_compare, "a0 a4 --json --best loss").out);
  CHECK(all["runs"][0]["metrics"] == json{{"best loss", 0.25}});
  CHECK(all["runs"][1]["metrics"] == json{{"best loss", 0.5}});
}

TEST_CASE("compare prints CSV with all digits, and names mistakes") {
  Sweep sweep;
  CHECK(run_verb(setup_compare, "a0 a3 --csv --metric loss").out ==
        "run,name,status,optimizer.lr,run.seed,steps,loss\n" + sweep.ids[0] + ",a0,finished,0.1,1,3,1\n" +
            sweep.ids[3] + ",a3,finished,0.2,2,3,nan\n");
  CHECK(error_of([] { run_verb(setup_compare, "a0 a1 --group-by lrr"); }) ==
        "2: these runs have no key `lrr`: did you mean `lr`?; they differ in run.seed");
  CHECK(error_of([] { run_verb(setup_compare, "a0 a1 --metric los"); }) ==
        "2: none of these runs has a metric \"los\": did you mean \"loss\"?");
  CHECK(error_of([] { run_verb(setup_compare, "tag:nothing"); }) ==
        "2: no run matches the filter `tag:nothing`; `runner ls` lists all");
}

TEST_CASE("a terminal shows the keys with the most values first, and last what the machine decides") {
  std::vector<ComparedRun> runs(4);
  for (int i = 0; i < 4; ++i)
    runs[static_cast<size_t>(i)].config = {
        {"devices.cpu_processes", i}, {"model.dim", i % 2}, {"optimizer.lr", i}, {"run.seed", i / 3}};
  auto keys = differing_keys(runs);
  sort_by_interest(keys, runs);
  CHECK(keys == std::vector<std::string>{"optimizer.lr", "model.dim", "run.seed", "devices.cpu_processes"});
}

TEST_CASE(
    "verbs that change runs take names or a filter, and a filter that finds nothing is a mistake, as for reading") {
  Sweep sweep;
  CHECK(error_of([] { run_verb(setup_rm, "-n a0 tag:high"); }) ==
        "2: name runs or give a filter, not both: `tag:high` is a filter, " + sweep.ids[0] + " is a run");
  CHECK(error_of([] { run_verb(setup_rename, "tag:high other"); }).starts_with("2: there is no run \"tag:high\""));
  CHECK(error_of([] { run_verb(setup_note, "tag:high other"); }).starts_with("2: there is no run \"tag:high\""));
  for (auto* verb : {setup_rm, setup_archive})
    CHECK(error_of([&] { run_verb(verb, "tag:none"); }) ==
          "2: no run matches the filter `tag:none`; `runner ls` lists all");
  CHECK(run_verb(setup_rm, "-n tag:high").out == sweep.ids[2] + "\n" + sweep.ids[3] + "\n");
}

TEST_CASE("metrics keeps the greatest steps exactly") {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  constexpr int64_t first = 9'007'199'254'740'992;  // 2^53
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string id = ledger.begin_run(new_run(folder, "long"));
    ledger.metrics(id, {{"loss", first, 1}, {"loss", first + 1, 2}, {"loss", INT64_MAX, 3}});
    ledger.finish_run(id, "finished", 0, "");
  }
  CHECK(run_verb(setup_metrics, "long --csv").out ==
        "step,loss\n9007199254740992,1\n9007199254740993,2\n9223372036854775807,3\n");
  CHECK(json::parse(run_verb(setup_metrics, "long --name loss --json").out)["points"] ==
        json{{first, 1.0}, {first + 1, 2.0}, {INT64_MAX, 3.0}});
}

TEST_CASE("metrics of several runs are one table, one CSV and one JSON object") {
  Sweep sweep;
  CHECK(run_verb(setup_metrics, "a0 a1 --csv").out == "run,name,step,loss,tokens\n" + sweep.ids[0] + ",a0,1,8,100\n" +
                                                          sweep.ids[0] + ",a0,2,0.5,\n" + sweep.ids[0] +
                                                          ",a0,3,1,300\n" + sweep.ids[1] + ",a1,1,8,100\n" +
                                                          sweep.ids[1] + ",a1,2,1,\n" + sweep.ids[1] + ",a1,3,2,300\n");
  CHECK_THAT(run_verb(setup_metrics, "a0 a1 --name loss --tail 1").out,
             StartsWith("run                   name  step  loss\n" + sweep.ids[0] + "  a0       3     1\n"));
  const json all = json::parse(run_verb(setup_metrics, "tag:low --json --name tokens").out);
  CHECK(all["runs"].size() == 2);
  CHECK(all["runs"][0]["run"] == sweep.ids[0]);
  CHECK(all["runs"][1]["metrics"]["tokens"] == json{{1, 100.0}, {3, 300.0}});
  CHECK(run_verb(setup_metrics, "a0 --csv").out == "step,loss,tokens\n1,8,100\n2,0.5,\n3,1,300\n");
}

TEST_CASE("show prints several runs one after the other, and as a list in JSON") {
  Sweep sweep;
  const auto text = run_verb(setup_show, "a0 a1").out;
  CHECK_THAT(text, StartsWith("a0  " + sweep.ids[0] + "\n") && ContainsSubstring("\n\na1  " + sweep.ids[1] + "\n"));
  const json all = json::parse(run_verb(setup_show, "a0 a1 --json").out);
  CHECK(all["runs"].size() == 2);
  CHECK(all["runs"][1]["id"] == sweep.ids[1]);
  CHECK(json::parse(run_verb(setup_show, "a0 --json").out)["id"] == sweep.ids[0]);
}

TEST_CASE("plot draws metrics over steps or another metric, and bars of memory") {
  Sweep sweep;
  const auto one = run_verb(setup_plot, "a0 --width 30 --height 4").out;
  CHECK(one ==
        "loss\n"
        "  |***\n"
        "5 +   ****\n"
        "  |       ****\n"
        "  |           ****************\n"
        "   1            2            3\n"
        "   step\n");
  // Step 2, between the tokens of steps 1 and 3, is in the middle.
  CHECK(run_verb(setup_plot, "a0 --x tokens --width 40 --height 4").out ==
        "loss\n"
        "  |***\n"
        "5 +   ******\n"
        "  |         ******\n"
        "  |               **********************\n"
        "   100              200               300\n"
        "   tokens\n");
  const auto two = run_verb(setup_plot, "a0 a1 --width 40").out;
  CHECK_THAT(two, ContainsSubstring("* a0\n") && ContainsSubstring("o a1\n"));
  CHECK(two.starts_with("loss\n"));
  {
    const Variable columns("COLUMNS", "40");  // as in `COLUMNS=40 runner plot a0 a1 | less`
    CHECK(run_verb(setup_plot, "a0 a1").out == two);
    const auto titled = run_verb(setup_plot, "a0 a1 --title " + std::string(60, 't')).out;
    CHECK(titled.starts_with(std::string(39, 't') + "~\n"));
  }
  CHECK(run_verb(setup_plot, "a0 --memory --width 40").out ==
        "memory of a rank\na0\n  predicted  ################ 1.00 GiB\n  measured   ######## 512.0 MiB\n");
  if (std::system("gnuplot --version >/dev/null 2>&1") == 0) {
    const auto image = sweep.folder.path / "memory.svg";
    for (const char* kind : {"predicted", "measured"})
      Ledger(sweep.folder.home(), Ledger::Mode::write)
          .annotate(sweep.ids[1], kind, {{"memory_bytes_per_rank", 600 << 10}});
    run_verb(setup_plot, "a1 --memory -o " + image.string());
    CHECK_THAT(read_file(image), ContainsSubstring(">KiB<"));
  }
  CHECK(error_of([] { run_verb(setup_plot, "a0 --metric val_loss"); }) ==
        "2: run " + sweep.ids[0] + " has no metric \"val_loss\"; it has loss, tokens");
  CHECK(error_of([] { run_verb(setup_plot, "a0 --x token"); }) ==
        "2: run " + sweep.ids[0] + " has no metric \"token\": did you mean \"tokens\"?; it has loss, tokens");
  CHECK(error_of([] { run_verb(setup_plot, "a0 --smooth 1"); }) ==
        "2: --smooth 1: the weight is at least 0 and less than 1, for example 0.6");
}
