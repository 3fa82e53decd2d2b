// runner diff: only what differs, for config, code, environment and results.
#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "../ledger/support.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/report/run_differences.hpp"
#include "verb.hpp"

namespace runner {
Action setup_compare(CLI::App& app);
Action setup_diff(CLI::App& app);
Action setup_show(CLI::App& app);
}  // namespace runner

using namespace runner;
using nlohmann::json;

namespace {

std::string patch_of_file(const std::string& name, const std::string& line) {
  return "diff --git a/" + name + " b/" + name + "\nindex 1..2 100644\n--- a/" + name + "\n+++ b/" + name +
         "\n@@ -1 +1 @@\n-one\n+" + line + "\n";
}

/// Runs "a", "b" (another learning rate, patch, host and loss) and "twin" (as "a").
struct Runs {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  Variable locale{"LC_ALL", "C"};
  std::map<std::string, std::string> ids;
  Runs() {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    for (const std::string name : {"a", "b", "twin"}) {
      const bool other = name == "b";
      NewRun run = new_run(folder, name);
      const std::string patch = patch_of_file("same.txt", "two") + patch_of_file("x.txt", other ? "three" : "two");
      run.config = {{"run", {{"seed", 1}}},
                    {"optimizer", {{"lr", other ? 0.003 : 0.001}, {"betas", {0.9, 0.95}}}},
                    {"model", {{"dim", 64}}}};
      if (other) run.config["train"]["max_steps"] = 10;
      run.git = {{"commit", "abc"},
                 {"branch", "main"},
                 {"patch", {{"digest", xxh3_hex(patch)}, {"kept", ledger.keep(patch)}}}};
      run.host = {{"hostname", other ? "box2" : "box"}, {"cores", 2}, {"memory_free_bytes", other ? 5 : 6}};
      const std::string text = other ? "return 2\n" : "return 1\n";
      run.annotations = {
          {"scripts", {{"hook.lua", ledger.keep(text)}}},
          {"inputs",
           {{"data",
             {{"data.seq_len", 8}, {"files", {{{"path", "t.txt"}, {"bytes", 4}, {"xxh3", other ? "f" : "e"}}}}}},
            {"init_from", nullptr}}},
          {"predicted", {{"memory_bytes_per_rank", other ? 2048 : 1024}}}};
      const std::string id = ids[name] = ledger.begin_run(run);
      ledger.begin_attempt(id, "start");
      ledger.metrics(id, {{"loss", 1, 3}, {"loss", 2, other ? 1.5 : 1.25}, {"lr", 2, 0.5}});
      ledger.finish_run(id, "finished", 0, "");
    }
    ledger.flush();
    folder.raw().run("UPDATE attempt SET started = 1000, ended = 1010");
  }
};

}  // namespace

TEST_CASE("diff shows the words in which two long commands differ") {
  const LedgerFolder folder;
  const Variable home("RUNNER_HOME", folder.home()), locale("LC_ALL", "C");
  Ledger ledger(folder.home(), Ledger::Mode::write);
  for (const std::string name : {"one", "two"}) {
    NewRun run = new_run(folder, name);
    run.argv = {"runner", "run", "recipes/of/a/long/name.toml", "--set", "run.name=" + name};
    if (name == "two") run.argv.insert(run.argv.end(), {"--set", "optimizer.lr=0.001"});
    run.argv.insert(run.argv.end(), {"--set", "train.max_steps=100"});
    ledger.finish_run(ledger.begin_run(run), "finished", 0, "");
  }
  ledger.flush();
  CHECK(run_verb(setup_diff, "one two --env")
            .out.ends_with("environment  A                     B\n"
                           "  command    ... run.name=one ...  ... run.name=two --set optimizer.lr=0.001 ...\n"));
}

TEST_CASE("the defaults of a strategy that only one run has are one line of diff, and no columns of compare") {
  const LedgerFolder folder;
  const Variable home("RUNNER_HOME", folder.home()), locale("LC_ALL", "C");
  Ledger ledger(folder.home(), Ledger::Mode::write);
  for (const std::string name : {"single", "fsdp"}) {
    NewRun run = new_run(folder, name);
    run.strategy = name;
    run.config["strategy"]["name"] = name;
    if (name == "fsdp")
      run.config["strategy"].update({{"verbose", false}, {"cpu_offload", false}, {"min_num_params", 5}});
    run.origins = {
        {"strategy.verbose", "default"}, {"strategy.cpu_offload", "default"}, {"strategy.min_num_params", "--set"}};
    const auto id = ledger.begin_run(run);
    ledger.metrics(id, {{"loss", 1, 2.0}});
    ledger.finish_run(id, "finished", 0, "");
  }
  ledger.flush();
  CHECK(run_verb(setup_diff, "single fsdp --config")
            .out.ends_with("config                     A       B\n"
                           "  run.name                 single  fsdp\n"
                           "  strategy.min_num_params  -       5\n"
                           "  strategy.name            single  fsdp\n"
                           "  B: 2 options of strategy fsdp at their defaults; --all shows them\n"));
  CHECK(run_verb(setup_diff, "single fsdp --config --all").out.find("  strategy.verbose         -       false\n") !=
        std::string::npos);
  CHECK(run_verb(setup_diff, "single fsdp --json").out.find("\"strategy.verbose\":[null,false]") != std::string::npos);
  const auto compared = run_verb(setup_compare, "single fsdp").out;
  CHECK(compared.find("min_num_params") != std::string::npos);
  CHECK(compared.find("verbose") == std::string::npos);
}

TEST_CASE("expectation 14: diff shows only differing config keys, code, environment and results") {
  Runs runs;
  const std::string a = runs.ids["a"], b = runs.ids["b"];
  CHECK(run_verb(setup_diff, "a b").out ==
        "A  " + a + "  a, finished\nB  " + b +
            "  b, finished\n\n"
            "config             A      B\n"
            "  optimizer.lr     0.001  0.003\n"
            "  train.max_steps  -      10\n"
            "\ncode                   A                                 B\n"
            "  uncommitted changes  085cbaa64fcdb7a257a17c6e5e038938  f6679255a79a667f82796273506c879c\n"
            "  data: the content of t.txt has changed\n"
            "\n# different in both\ndiff --git a/x.txt b/x.txt\n--- " +
            a + "\n+++ " + b +
            "\n@@ -3,4 +3,4 @@\n +++ b/x.txt\n @@ -1 +1 @@\n -one\n-+two\n++three\n--- hook.lua of " + a +
            "\n+++ hook.lua of " + b +
            "\n@@ -1 +1 @@\n-return 1\n+return 2\n"
            "\nenvironment  A    B\n"
            "  hostname   box  box2\n"
            "\nresults                            A         B\n"
            "  best loss                        1.25      1.5\n"
            "  last loss                        1.25      1.5\n"
            "  predicted memory_bytes_per_rank  1.00 KiB  2.00 KiB\n");
}

TEST_CASE("diff selects parts, and says what is equal") {
  Runs runs;
  CHECK(run_verb(setup_diff, "a b --config").out.find("code") == std::string::npos);
  const std::string equal = run_verb(setup_diff, "a twin").out;
  CHECK(equal == "A  " + runs.ids["a"] + "  a, finished\nB  " + runs.ids["twin"] +
                     "  twin, finished\n\nequal: config, code, environment, results\n");
  run_verb(setup_diff, "a b --exit-code", ExitCode::run_failed);
  run_verb(setup_diff, "a twin --exit-code", ExitCode::done);
  run_verb(setup_diff, "a b", ExitCode::done);
  const json all = json::parse(run_verb(setup_diff, "a b --json").out);
  CHECK(all["equal"] == false);
  CHECK(all["config"] == json{{"optimizer.lr", {0.001, 0.003}}, {"train.max_steps", {nullptr, 10}}});
  CHECK(all["environment"] == json{{"hostname", {"box", "box2"}}});
  CHECK(all["data"] == json{"the content of t.txt has changed"});
  CHECK(json::parse(run_verb(setup_diff, "a twin --json").out)["equal"] == true);
}

TEST_CASE("diff tells that a run was resumed with other settings, and of lists only what one run has") {
  LedgerFolder folder;
  Variable home{"RUNNER_HOME", folder.home()};
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    for (const std::string name : {"changed", "plain"}) {
      NewRun run = new_run(folder, name);
      run.config = {{"optimizer", {{"lr", name == "changed" ? 0.001 : 0.01}}}};
      run.git = {{"untracked", {"a.txt", name + ".txt", "z.txt"}}};
      const std::string id = ledger.begin_run(run);
      ledger.begin_attempt(id, "start");
      ledger.metrics(id, {{"loss", 1, 3}, {"tokens_per_s", 1, name == "changed" ? 10.0 : 20.0}});
      ledger.finish_run(id, "finished", 0, "");
      if (name == "plain") continue;
      run.config = {{"optimizer", {{"lr", 0.01}}}};
      ledger.reopen_run(id, run);
      ledger.begin_attempt(id, "resume");
      ledger.finish_run(id, "finished", 0, "");
    }
  }
  const auto text = run_verb(setup_diff, "changed plain").out;
  CHECK(text.find("\nconfig\n  A: attempt 1 had other values of optimizer.lr\n") != std::string::npos);
  CHECK(text.find("  untracked files  [\"changed.txt\"]  [\"plain.txt\"]\n") != std::string::npos);
  CHECK(text.find("tokens_per_s") == std::string::npos);
  CHECK(run_verb(setup_diff, "changed plain --results").out.find("tokens_per_s") != std::string::npos);
  const json all = json::parse(run_verb(setup_diff, "changed plain --json").out);
  CHECK(all["attempts"] == json{"A: attempt 1 had other values of optimizer.lr"});
  CHECK(all["results"].contains("last tokens_per_s"));
  CHECK(run_verb(setup_compare, "changed plain").err == "note: changed: attempt 1 had other values of optimizer.lr\n");
  CHECK(run_verb(setup_show, "changed").out.find("  start, with optimizer.lr = 0.001\n") != std::string::npos);
}

TEST_CASE("two patches are compared file by file") {
  const std::string one = patch_of_file("a.txt", "two") + patch_of_file("b.txt", "two"),
                    other = patch_of_file("b.txt", "three");
  CHECK(patch_difference(one, one, "A", "B") == "");
  const std::string text = patch_difference(one, other, "A", "B");
  CHECK(
      text.starts_with("# only in A\ndiff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
                       "# different in both\ndiff --git a/b.txt b/b.txt\n--- A\n+++ B\n"));
  CHECK(text.ends_with(" -one\n-+two\n++three\n"));
}
