// runner ls, show and metrics: their output, and the JSON that scripts rely on.
#include <pty.h>

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <regex>

#include "../ledger/support.hpp"
#include "runner/base/clock.hpp"
#include "runner/checkpoint/manifest.hpp"
#include "verb.hpp"

namespace runner {
Action setup_ls(CLI::App& app);
Action setup_plot(CLI::App& app);
Action setup_show(CLI::App& app);
Action setup_tail(CLI::App& app);
Action setup_metrics(CLI::App& app);
}  // namespace runner

using namespace runner;
using nlohmann::json;

namespace {

/// Three runs: finished (with metrics), failed, lost. Their times are fixed, so relative times are constant.
struct ThreeRuns {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  Variable locale{"LC_ALL", "C"};
  ThreeRuns() {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string good = ledger.begin_run(new_run(folder, "good"));
    ledger.begin_attempt(good, "start");
    for (int64_t step = 1; step <= 4; ++step)
      ledger.metrics(good, {{"loss", step, 5.0 - static_cast<double>(step)}, {"memory_bytes", step, 1 << 20}});
    ledger.metrics(good, {{"val_loss", 4, 0.1 + 0.2}});
    ledger.annotate(
        good, "predicted",
        {{"step_seconds", 0.25}, {"step_seconds_error", 0.12}, {"tokens_per_s", 10}, {"memory_parts", json::object()}});
    ledger.annotate(good, "measured", {{"tokens_per_s", 12.5}});
    std::filesystem::create_directories(ledger.run_dir(good) + "/checkpoints/step-000004");
    ledger.artifact(good, "checkpoint", "checkpoints/step-000002", {{"step", 2}});
    ledger.artifact(good, "checkpoint", "checkpoints/step-000004", {{"step", 4}, {"bytes", 2048}});
    ledger.event(good, "note", {{"event", "note"}, {"rank", 0}, {"message", "hello"}});
    ledger.finish_run(good, "finished", 0, "");
    NewRun plain = new_run(folder, "bad");
    plain.tags.clear();
    plain.recipe_source = "-- caf\xe9\nreturn {}\n";
    const std::string bad = ledger.begin_run(plain);
    ledger.begin_attempt(bad, "start");
    ledger.begin_attempt(bad, "rank 1 was killed by signal 9", 0);
    ledger.annotate(bad, "measured", {{"failure", {{"kind", "crash"}}}});
    ledger.finish_run(bad, "failed", 1, "rank 1 was killed by signal 9\nlog: rank-1.log");
    const std::string gone = ledger.begin_run(plain);
    ledger.metrics(gone, {{"loss", 1, std::numeric_limits<double>::quiet_NaN()}});
    ledger.flush();
    auto file = folder.raw();
    const double now = wall_seconds();
    const auto rewrite = [&](const std::string& id, const char* new_id, double hours) {
      file.run("UPDATE run SET id = ?, started = ?, ended = iif(ended IS NULL, NULL, ?) WHERE id = ?", new_id,
               now - hours * 3600 - 1800, now - hours * 3600 - 1700, id);
      file.run(
          "UPDATE attempt SET started = ?1 + 50 * (number - 1), ended = iif(ended IS NULL, NULL, iif(number = (SELECT "
          "max(number) FROM attempt AS other WHERE other.run = attempt.run), ?1 + 100, ?1 + 50)) "
          "WHERE run = (SELECT run FROM run WHERE id = ?2)",
          now - hours * 3600 - 1800, new_id);
      file.run(
          "UPDATE attempt SET heartbeat = ?, process_start = process_start - 1 WHERE run = (SELECT run FROM run WHERE "
          "id = ?)",
          now - hours * 3600 - 1700, new_id);
    };
    rewrite(good, "20261121-060000-aaaa", 30);
    rewrite(bad, "20261121-070000-bbbb", 20);
    rewrite(gone, "20261121-080000-cccc", 2);
  }
};

/// The output of a verb on a terminal of so many columns.
std::string on_terminal(Action (*setup)(CLI::App&), unsigned short columns) {
  int terminal = -1, end = -1;
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(::openpty(&terminal, &end, nullptr, nullptr, &size) == 0);
  std::fflush(stdout);
  const int saved = ::dup(STDOUT_FILENO);
  ::dup2(end, STDOUT_FILENO);
  ::close(end);
  CLI::App app;
  Action action = setup(app);
  app.parse("");
  action();
  std::fflush(stdout);
  ::dup2(saved, STDOUT_FILENO);
  ::close(saved);
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = ::read(terminal, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(n));
  ::close(terminal);
  std::erase(out, '\r');
  return out;
}

}  // namespace

TEST_CASE("an empty ledger explains how to start a run, on stderr") {
  LedgerFolder folder;
  Variable home("RUNNER_HOME", folder.home());
  const auto printed = run_verb(setup_ls, "");
  CHECK(printed.out == "");
  CHECK(printed.err ==
        "no runs in " + folder.home() + " yet; start one with: runner run RECIPE.toml (runner init writes a recipe)\n");
  CHECK(run_verb(setup_ls, "--json").out == "{\"runs\":[],\"schema\":1}\n");
  std::filesystem::create_directories(folder.home() + "/runs/20261121-060000-aaaa");
  CHECK(run_verb(setup_ls, "")
            .err.starts_with("the ledger in " + folder.home() + " has no runs, but " + folder.home() +
                             "/runs has 1 folder of earlier ones"));
}

TEST_CASE("ls is an aligned table, newest last") {
  ThreeRuns runs;
  const auto printed = run_verb(setup_ls, "");
  CHECK(printed.err == "");
  CHECK(printed.out ==
        "ID                    NAME  STATUS    STRATEGY  STARTED     TOOK  STEPS           METRIC  TAGS                "
        "   "
        "WHY\n"
        "20261121-060000-aaaa  good  finished  fsdp      30 h ago  1m 40s      4  val_loss 0.3000  night, a \"quoted\" "
        "one\n"
        "20261121-070000-bbbb  bad   failed    fsdp      20 h ago  1m 40s      0                -                      "
        "   "
        "crash: rank 1 was killed by signal 9\n"
        "20261121-080000-cccc  bad   lost      fsdp      2 h ago   1m 40s      1         loss nan                      "
        "   "
        "its supervisor is gone\n");
  CHECK(run_verb(setup_ls, "-n 1").out ==
        "ID                    NAME  STATUS  STRATEGY  STARTED    TOOK  STEPS    METRIC  WHY\n"
        "20261121-080000-cccc  bad   lost    fsdp      2 h ago  1m 40s      1  loss nan  its supervisor is gone\n");
}

TEST_CASE("ls shows all of a reason in a pipe, and in a terminal its cause before its paths") {
  ThreeRuns runs;
  const std::string path = "/a/folder/with/a/name/that/fills/the/width/of/the/table/ledger/checkpoints/.step-000010",
                    why = "rank 1: cannot write " + path + ": No space left on device";
  runs.folder.raw().run("UPDATE run SET message = ?, annotations = '{}' WHERE status = 'failed'", why);
  CHECK(run_verb(setup_ls, "").out.find("  " + why + "\n") != std::string::npos);
  CHECK(on_terminal(setup_ls, 190).find("cannot write .../.step-000010: No space left on device") != std::string::npos);
}

TEST_CASE("ls fits a terminal of 60 columns, and names a strategy in Lua without its folder") {
  ThreeRuns runs;
  runs.folder.raw().run("UPDATE run SET strategy = 'lua:/a/folder/with/a/long/name/top.lua' WHERE name = 'good'");
  CHECK(on_terminal(setup_ls, 60) ==
        "ID    NAME  STATUS    STEPS           METRIC  WHY\n"
        "aaaa  good  finished      4  val_loss 0.3000\n"
        "bbbb  bad   failed        0                -  crash: rank 1~\n"
        "cccc  bad   lost          1         loss nan  its superviso~\n");
  CHECK(on_terminal(setup_ls, 109).find("  lua:top.lua  ") != std::string::npos);
  CHECK(run_verb(setup_ls, "").out.find("  lua:top.lua  ") != std::string::npos);
}

TEST_CASE("ls shows the metric that checkpoint.monitor names") {
  LedgerFolder folder;
  Variable home("RUNNER_HOME", folder.home());
  Ledger ledger(folder.home(), Ledger::Mode::write);
  for (const char* monitor : {"loss", "val_loss"}) {
    NewRun run = new_run(folder, monitor);
    run.config["checkpoint"]["monitor"] = monitor;
    const std::string id = ledger.begin_run(run);
    ledger.metrics(id, {{"loss", 4, 2.5}, {"val_loss", 4, 2.75}});
    ledger.finish_run(id, "finished", 0, "stopped at step 4 by hook early_stopping: enough");
  }
  const json list = json::parse(run_verb(setup_ls, "--json").out)["runs"];
  CHECK(list[0]["metric"] == "loss");
  CHECK(list[0]["metric_value"] == 2.5);
  CHECK(list[1]["metric"] == "val_loss");
  CHECK(list[1]["metric_value"] == 2.75);
  CHECK(list[1]["why"] == "stopped at step 4 by hook early_stopping: enough");
  const std::string table = run_verb(setup_ls, "").out;
  CHECK(table.find("  loss 2.5000  ") != std::string::npos);
  CHECK(table.find("  val_loss 2.7500  ") != std::string::npos);
}

TEST_CASE("ls sorts by the given column") {
  ThreeRuns runs;
  const auto order = [](const std::string& column) {
    std::string letters;
    const json printed = json::parse(run_verb(setup_ls, "--json --sort " + column).out);
    for (const auto& run : printed["runs"]) letters += run["id"].get<std::string>().back();
    return letters;
  };
  CHECK(order("started") == "abc");
  CHECK(order("name") == "bca");
  CHECK(order("status") == "bac");
  CHECK(order("steps") == "bca");
  CHECK(order("metric") == "abc");  // the others have no value: no point, or NaN
}

TEST_CASE("ls and show report that a run's folder is missing") {
  ThreeRuns runs;
  std::string folder;
  {
    Ledger ledger(runs.folder.home(), Ledger::Mode::read);
    folder = ledger.run_dir("20261121-060000-aaaa");
  }
  CHECK(run_verb(setup_show, "good").out.find("  folder    " + folder + "\n") != std::string::npos);
  std::filesystem::remove_all(folder);
  CHECK(run_verb(setup_ls, "--tag night").out.find("one  its folder is missing\n") != std::string::npos);
  CHECK(run_verb(setup_show, "good").out.find("  folder    " + folder + " (moved or deleted)\n") != std::string::npos);
  CHECK(json::parse(run_verb(setup_show, "good --json").out)["run_dir_exists"] == false);
  CHECK(json::parse(run_verb(setup_ls, "--json").out)["runs"][1]["run_dir_exists"] == true);
}

TEST_CASE("ls that is not in a terminal, and show, print all of a long reason") {
  LedgerFolder folder;
  Variable home("RUNNER_HOME", folder.home()), locale("LC_ALL", "C");
  const std::string reason = "the reason is " + std::string(200, 'x');
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string id = ledger.begin_run(new_run(folder, "long"));
    ledger.begin_attempt(id, "start");
    ledger.finish_run(id, "failed", 1, reason);
  }
  CHECK(run_verb(setup_ls, "").out.find("  " + reason + "\n") != std::string::npos);
  CHECK(run_verb(setup_show, "").out.find(reason + "\n") != std::string::npos);
}

TEST_CASE("ls selects runs by status and tags") {
  ThreeRuns runs;
  const auto ids = [](const std::string& arguments) {
    std::vector<std::string> list;
    const json printed = json::parse(run_verb(setup_ls, arguments + " --json").out);
    for (const auto& run : printed["runs"]) list.push_back(run["id"].get<std::string>().substr(16));
    return list;
  };
  CHECK(ids("") == std::vector<std::string>{"aaaa", "bbbb", "cccc"});
  CHECK(ids("--status lost") == std::vector<std::string>{"cccc"});
  CHECK(ids("--tag night") == std::vector<std::string>{"aaaa"});
  CHECK(ids("--tag night --tag day").empty());
  CHECK(ids("-n 2") == std::vector<std::string>{"bbbb", "cccc"});
  CHECK(run_verb(setup_ls, "--tag day").err == "no run matches these filters (3 runs in " + runs.folder.home() + ")\n");
  CHECK(error_of([] { run_verb(setup_ls, "--status finish"); }) ==
        "2: --status finish: there is no such status, did you mean \"finished\"?; it is one of running, finished, "
        "failed, interrupted, "
        "preempted, pruned or lost");
}

TEST_CASE("ls --json has the row that scripts rely on") {
  ThreeRuns runs;
  const json list = json::parse(run_verb(setup_ls, "--json").out);
  CHECK(list["schema"] == 1);
  const json good = list["runs"][0];
  CHECK(good.size() == 16);
  CHECK(good["name"] == "good");
  CHECK(good["status"] == "finished");
  CHECK(good["strategy"] == "fsdp");
  CHECK(good["steps"] == 4);
  CHECK(good["final_loss"] == 1.0);
  CHECK(good["tags"] == json{"night", "a \"quoted\" one"});
  CHECK(good["ended"].get<double>() - good["started"].get<double>() == 100.0);
  CHECK(list["runs"][1]["final_loss"].is_null());
  CHECK(list["runs"][2]["final_loss"] == "NaN");
}

TEST_CASE("show prints the settings, course and results of a run") {
  ThreeRuns runs;
  std::string out = run_verb(setup_show, "good").out;
  out = std::regex_replace(out, std::regex("started [-0-9]+ [:0-9]+"), "started THEN");
  out = std::regex_replace(out, std::regex("[0-9]+ s ago"), "just now");  // on a slow machine
  INFO(out);
  const std::string folder = runs.folder.home() + "/runs/";
  CHECK(
      out.starts_with("good  20261121-060000-aaaa\n"
                      "  status    finished 30 h ago, took 1m 40s, started THEN\n"
                      "  strategy  fsdp on 2 ranks: asked for\n"
                      "  steps     4, val_loss 0.3, loss 1\n"
                      "  tags      night, a \"quoted\" one\n"
                      "  notes     first light\n"
                      "  folder    " +
                      folder));
  CHECK(out.find("\n  command   runner run llm.toml\n") != std::string::npos);
  CHECK(out.find("\n  code      0123abcd on main, with changes that are not committed\n  build     0.1.0+abc\n") !=
        std::string::npos);
  CHECK(out.find("\n\nloss\n"
                 "4 |#\n"
                 "  |#\n"
                 "  |##\n"
                 "  |##.\n"
                 "  |###\n"
                 "1 |###.\n"
                 "   1  4\n"
                 "\nval_loss\n"
                 "0.3 |\n"
                 "    |\n"
                 "    |\n"
                 "    |#\n"
                 "    |#\n"
                 "0.3 |#\n"
                 "     4\n"
                 "\nmetrics\n"
                 "                    last       min       max\n"
                 "  loss                 1         1         4\n"
                 "  memory_bytes  1.00 MiB  1.00 MiB  1.00 MiB\n"
                 "  val_loss           0.3       0.3       0.3\n"
                 "\nprediction\n"
                 "                    predicted  measured\n"
                 "  step_seconds  0.25 s +-12 %         -\n"
                 "  tokens_per_s             10      12.5\n"
                 "\ncheckpoints\n"
                 "  checkpoints/step-000004  just now  2.00 KiB\n"
                 "\nevents\n"
                 "  just now  note  hello\n") != std::string::npos);
}

TEST_CASE("show prints why a run failed and how often it was started, and when a lost run was last seen") {
  ThreeRuns runs;
  const std::string failed = run_verb(setup_show, "bbbb").out;
  INFO(failed);
  CHECK(failed.find(", exit code 1\n  why       crash: rank 1 was killed by signal 9 log: rank-1.log\n") !=
        std::string::npos);
  CHECK(std::regex_search(failed, std::regex("\nattempts\n  1  20 h ago +50[.0]* s  process [0-9]+ on [^ ]+  "
                                             "fsdp on 2 ranks  start\n  "
                                             "2 .*rank 1 was killed by signal 9\n")));
  CHECK(run_verb(setup_show, "cccc").out.find("  status    lost, last seen 2 h ago, took 1m 40s, started ") !=
        std::string::npos);
  CHECK(run_verb(setup_show, "cccc").out.find("\n  why       its supervisor is gone\n") != std::string::npos);
}

TEST_CASE("show prints the command that began a run and the one that resumed it") {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string run = ledger.begin_run(new_run(folder, "good"));
    ledger.begin_attempt(run, "start");
    ledger.finish_run(run, "interrupted", 130, "");
    NewRun again = new_run(folder, "good");
    again.argv = {"runner", "resume", "good"};
    ledger.reopen_run(run, again);
    ledger.begin_attempt(run, "resume");
    ledger.finish_run(run, "finished", 0, "");
  }
  CHECK(run_verb(setup_show, "last").out.find("\n  command   runner run llm.toml\n  resumed   runner resume good\n") !=
        std::string::npos);
}

TEST_CASE("show prints commands that can be pasted, generated texts as they are, and all of few events") {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    NewRun row = new_run(folder, "good");
    row.argv = {"runner", "run", "a b.toml", "--set", "run.notes=x & <b>"};
    const std::string run = ledger.begin_run(row);
    ledger.begin_attempt(run, "start");
    for (int step = 1; step <= 4; ++step)
      ledger.event(run, "sample",
                   {{"step", step}, {"text", "\nROMEO " + std::to_string(step) + ".\n\x1b[31mJULIET\n"}});
    for (int step = 1; step <= 7; ++step) ledger.event(run, "note", {{"message", "n" + std::to_string(step)}});
    ledger.finish_run(run, "finished", 0, "");
  }
  const std::string out = run_verb(setup_show, "last").out;
  INFO(out);
  CHECK(out.find("\n  command   runner run 'a b.toml' --set 'run.notes=x & <b>'\n") != std::string::npos);
  CHECK(out.find("\nsamples (3 of 4; --json has all)\n"
                 "  step 2\n    ROMEO 2.\n    \\x1B[31mJULIET\n"
                 "  step 3\n    ROMEO 3.\n    \\x1B[31mJULIET\n"
                 "  step 4\n    ROMEO 4.\n    \\x1B[31mJULIET\n"
                 "\nevents\n") != std::string::npos);
  for (int step = 1; step <= 7; ++step) CHECK(out.find("note  n" + std::to_string(step) + "\n") != std::string::npos);
}

TEST_CASE("plot --json has the points of the curves") {
  ThreeRuns runs;
  const json chart = json::parse(run_verb(setup_plot, "good --metric loss --json").out);
  CHECK(chart["schema"] == 1);
  CHECK((chart["x"] == "step" && chart["y"] == "loss"));
  REQUIRE(chart["curves"].size() == 1);
  CHECK(chart["curves"][0]["name"] == "good");
  CHECK(chart["curves"][0]["x"].back() == 4);
  CHECK(chart["curves"][0]["y"].back() == 1);
  const json bars = json::parse(run_verb(setup_plot, "good --memory --json").out);
  CHECK((bars["bars"][0]["name"] == "good" && bars["bars"][0].contains("predicted")));
}

TEST_CASE("tail ends with the exit code of the run") {
  ThreeRuns runs;
  run_verb(setup_tail, "good --no-follow", ExitCode::done);
  run_verb(setup_tail, "bbbb --no-follow", ExitCode::run_failed);
  run_verb(setup_tail, "cccc --no-follow", ExitCode::run_failed);
  runs.folder.raw().execute("UPDATE run SET status = 'preempted' WHERE id LIKE '%bbbb'");
  run_verb(setup_tail, "bbbb --no-follow", ExitCode::preempted);
}

TEST_CASE("show prints the run on an MLflow server") {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string run = ledger.begin_run(new_run(folder, "good"));
    ledger.annotate(run, "mlflow",
                    {{"run", "0a1b"}, {"experiment", "3"}, {"url", "http://127.0.0.1:5000/#/experiments/3/runs/0a1b"}});
    ledger.finish_run(run, "finished", 0, "");
  }
  CHECK(run_verb(setup_show, "last")
            .out.find("\n  mlflow    0a1b at http://127.0.0.1:5000/#/experiments/3/runs/0a1b\n") != std::string::npos);
  CHECK(json::parse(run_verb(setup_show, "last --json").out)["mlflow"]["run"] == "0a1b");
}

TEST_CASE("show --json has all keys that scripts rely on") {
  ThreeRuns runs;
  const json all = json::parse(run_verb(setup_show, "good --json").out);
  CHECK(all["schema"] == 1);
  for (const char* key :
       {"id", "name", "status", "strategy", "started", "ended", "steps", "final_loss", "tags", "config", "origins",
        "plan", "predicted", "measured", "metrics", "attempts", "checkpoints", "events"})
    CHECK(all.contains(key));
  CHECK(all["metrics"]["val_loss"] == json{{"last", 0.1 + 0.2}, {"min", 0.1 + 0.2}, {"max", 0.1 + 0.2}});
}

TEST_CASE("show and metrics without a run use the last run") {
  ThreeRuns runs;
  CHECK(json::parse(run_verb(setup_show, "--json").out)["id"] == "20261121-080000-cccc");
  CHECK(run_verb(setup_metrics, "").out == "step  loss\n   1   nan\n");
}

TEST_CASE("metrics are printed as a table, and as CSV and JSON with all digits") {
  ThreeRuns runs;
  CHECK(run_verb(setup_metrics, "good").out ==
        "step  loss  val_loss  memory_bytes\n"
        "   1     4                 1048576\n"
        "   2     3                 1048576\n"
        "   3     2                 1048576\n"
        "   4     1       0.3       1048576\n");
  CHECK(run_verb(setup_metrics, "good --csv --name loss --name val_loss").out ==
        "step,loss,val_loss\n1,4,\n2,3,\n3,2,\n4,1,0.30000000000000004\n");
  CHECK(run_verb(setup_metrics, "good --name val_loss --json").out ==
        "{\"name\":\"val_loss\",\"points\":[[4,0.30000000000000004]],\"run\":\"20261121-060000-aaaa\",\"schema\":1}\n");
  CHECK(json::parse(run_verb(setup_metrics, "cccc --name loss --json").out)["points"] == json::parse("[[1,\"NaN\"]]"));
  const json several = json::parse(run_verb(setup_metrics, "good --json").out);
  CHECK(several["schema"] == 1);
  CHECK(several["metrics"]["loss"] == json::parse("[[1,4.0],[2,3.0],[3,2.0],[4,1.0]]"));
  CHECK(several["metrics"].size() == 3);
  CHECK(run_verb(setup_metrics, "bbbb --json").out ==
        "{\"metrics\":{},\"run\":\"20261121-070000-bbbb\",\"schema\":1}\n");
}

TEST_CASE("metrics selects steps") {
  ThreeRuns runs;
  CHECK(run_verb(setup_metrics, "good --tail 2 --name loss").out == "step  loss\n   3     2\n   4     1\n");
  CHECK(run_verb(setup_metrics, "good --tail 2 --metric loss").out == "step  loss\n   3     2\n   4     1\n");
  CHECK(run_verb(setup_metrics, "good --every 3 --name loss --csv").out == "step,loss\n3,2\n4,1\n");
  CHECK(run_verb(setup_metrics, "good --every 2 --tail 1 --name loss --json").out ==
        "{\"name\":\"loss\",\"points\":[[4,1.0]],\"run\":\"20261121-060000-aaaa\",\"schema\":1}\n");
}

TEST_CASE("metrics refuses unknown names") {
  ThreeRuns runs;
  CHECK(
      error_of([] { run_verb(setup_metrics, "good --name los"); }) ==
      "2: run 20261121-060000-aaaa has no metric \"los\": did you mean \"loss\"?; it has loss, memory_bytes, val_loss");
  CHECK(error_of([] { run_verb(setup_metrics, "bbbb"); }) == "2: run 20261121-070000-bbbb has no metrics yet");
  CHECK(
      error_of([] { run_verb(setup_metrics, "good bbbb --name los"); }) ==
      "2: none of these runs has a metric los; they have loss, val_loss, memory_bytes (--name takes one name, and may "
      "be given several times)");
  CHECK(error_of([&] { run_verb(setup_show, "goood"); }) == "2: there is no run \"goood\" in " +
                                                                runs.folder.file().string() +
                                                                ": did you mean \"good\"?; `runner ls` lists all, "
                                                                "RUNNER_HOME=FOLDER names another ledger");
}

TEST_CASE("the best checkpoint is that of the best finite value, also if later ones are not finite") {
  LedgerFolder folder;
  Variable home("RUNNER_HOME", folder.home());
  constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  Ledger ledger(folder.home(), Ledger::Mode::write);
  NewRun row = new_run(folder);
  row.config["checkpoint"]["monitor"] = "val_loss";
  const std::string run = ledger.begin_run(row);
  ledger.begin_attempt(run, "start");
  ledger.metrics(run, {{"val_loss", 1, 0.5}, {"val_loss", 2, -infinity}, {"val_loss", 3, nan}});
  ledger.finish_run(run, "finished", 0, "");
  ledger.flush();
  const double values[] = {0.5, -infinity, nan};
  for (int64_t step = 1; step <= 3; ++step) {
    const auto checkpoint = fs::path(ledger.run_dir(run)) / "checkpoints" / fmt::format("step-{:06d}", step);
    fs::create_directories(checkpoint);
    Manifest manifest;
    manifest.step = step;
    manifest.world_size = 1;
    manifest.state = {{"val_loss", values[step - 1]}};
    write_file_atomic(checkpoint / manifest_name, write_manifest(manifest).manifest);
  }
  CHECK(json::parse(run_verb(setup_show, "last --json").out).at("best_checkpoint") ==
        json({{"metric", "val_loss"}, {"value", 0.5}, {"step", 1}, {"path", "checkpoints/step-000001"}}));
}
