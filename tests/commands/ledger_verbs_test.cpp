// The verbs that edit and query the ledger, as processes; a shell script stands for the worker.
#include <signal.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <regex>
#include <sstream>
#include <thread>

#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/garbage.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/orphans.hpp"
#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// A place with runs of a recipe without a name; their worker fails at once.
struct FailedRuns : Workplace {
  explicit FailedRuns(int count) {
    write("text.txt", std::string(4000, 'x'));
    write("tiny.toml",
          "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 8\nn_heads = 1\nmax_seq_len = 8\n[data]\nformat = \"text\"\n"
          "train = [\"text.txt\"]\ntokenizer = \"bytes\"\n[devices]\naccelerator = \"cpu\"\ndevices = 1\n"
          "[optimizer]\nname = \"adamw\"\nlr = 0.25\n[train]\nmax_steps = 1\nglobal_batch_size = 1\n");
    replace_worker("exit 1");
    for (int i = 0; i < count; ++i) run({"run", "tiny.toml", "--set", "run.seed=" + std::to_string(i)});
  }
  json list(const std::vector<std::string>& filter = {}) const {
    std::vector<std::string> words = {"ls", "--json"};
    words.insert(words.end(), filter.begin(), filter.end());
    return run(words).json().at("runs");
  }
};

}  // namespace

TEST_CASE("gc does not count a checkpoint that another gc has removed") {
  const FailedRuns place(1);
  const runner::SurplusCheckpoint checkpoint{.run = place.list().at(0).at("id"), .path = place.path() / "step-000002"};
  const auto result = runner::remove_surplus(place.home().string(), checkpoint);
  CHECK_FALSE(result.removed);
  CHECK(result.used_by.empty());
  fs::create_directories(checkpoint.path);
  CHECK(runner::remove_surplus(place.home().string(), checkpoint).removed);
  CHECK_FALSE(fs::exists(checkpoint.path));
}

TEST_CASE("gc deletes the files of a checkpoint when it does not hold the ledger's lock any more") {
  const FailedRuns place(1);
  const std::string run = place.list().at(0).at("id");
  const fs::path path = place.path() / "step-000002", hidden = place.path() / ".step-000002.removed";
  fs::create_directories(path);
  fs::path seen;
  const auto hide = [&] { seen = runner::hide_checkpoint(path); };
  CHECK(runner::remove_unused_checkpoint(place.home().string(), run, path, hide).empty());
  CHECK(seen == hidden);
  CHECK((fs::exists(hidden) && !fs::exists(path)));
  CHECK(runner::hide_checkpoint(hidden) == hidden);
  fs::create_directories(path / "again");
  CHECK(runner::hide_checkpoint(path) == hidden);
  CHECK(fs::exists(hidden / "again"));
}

TEST_CASE("a table without a filter leaves out runs that only read a model") {
  const FailedRuns place(1);
  {
    runner::Ledger ledger(place.home().string(), runner::Ledger::Mode::write);
    runner::NewRun row;
    row.name = "tiny-evaluate";
    row.run_dir_root = (place.home() / "runs").string();
    row.strategy = "evaluate";
    row.config = row.origins = row.plan = json::object();
    ledger.finish_run(ledger.begin_run(row), "finished", 0, "");
  }
  const auto usual = place.run({"ls"});
  CHECK_THAT(usual.out, !ContainsSubstring("tiny-evaluate"));
  CHECK(usual.err == "1 run of evaluate, predict and embed not listed; --all or a filter lists them\n");
  CHECK_THAT(place.run({"ls", "-n", "1"}).out, !ContainsSubstring("tiny-evaluate") && ContainsSubstring("failed"));
  for (const auto& words : {std::vector<std::string>{"ls", "--all"}, {"ls", "strategy:evaluate"}}) {
    const auto listed = place.run(words);
    CHECK_THAT(listed.out, ContainsSubstring("tiny-evaluate"));
    CHECK(listed.err.empty());
  }
  CHECK(place.list().size() == 2);
}

TEST_CASE("runs are named, tagged, grouped, annotated and archived on the command line") {
  const FailedRuns place(3);
  const json runs = place.list();
  REQUIRE(runs.size() == 3);
  const std::string first = runs[0]["id"], name = runs[0]["name"];
  CHECK(std::regex_match(name, std::regex("[a-z]+-[a-z]+-1")));
  CHECK(place.run({"tag", name.substr(0, name.rfind('-')), "+good", "+draft"}).err ==
        first + ": tags none -> good, draft\n");
  CHECK(place.run({"tag", "last", "-good"}).err.ends_with(" stays as it is\n"));
  CHECK(place.run({"tag", first, "-draft"}).code == 0);
  CHECK(place.list({"tag:good"}).size() == 1);
  CHECK(place.list({"-tag:good"}).size() == 2);
  CHECK(place.run({"tag", "status:failed", "-tag:good", "+other"}).err == "changed 2 of 2 runs\n");
  CHECK(place.run({"note", first, "two", "words"}).code == 0);
  CHECK(place.run({"note", "--append", first, "more"}).code == 0);
  CHECK(place.run({"note", first}).out == "two words\nmore\n");
  CHECK(place.run({"rename", first, "best"}).code == 0);
  CHECK(place.run({"group", "run.seed<2", "study"}).err == "changed 2 of 2 runs\n");
  CHECK(place.list({"group:study"}).size() == 2);
  CHECK(place.run({"archive", "best"}).code == 0);
  CHECK(place.list().size() == 2);
  CHECK(place.run({"archive", "--undo", "group:study"}).err == first + ": archived yes -> no\n");
  CHECK(place.list().size() == 3);
  const auto changes = place.run({"query", "--json", "SELECT what, count(*) FROM changes GROUP BY what ORDER BY what"});
  CHECK(changes.json().at("rows").dump() == R"([["archived",2],["group",2],["name",1],["notes",2],["tags",4]])");
  CHECK(place.run({"tag", "last"}).code == 2);
  CHECK(place.run({"tag", "nothing", "+x"}).code == 2);
}

TEST_CASE("expectation 13: ls takes filters, columns and formats") {
  const FailedRuns place(2);
  CHECK(place.run({"ls", "--csv", "--columns", "run.seed,optimizer.lr,status", "sort:-run.seed"}).out ==
        "run.seed,optimizer.lr,status\n1,0.25,failed\n0,0.25,failed\n");
  CHECK(place.run({"ls", "--columns", "seed,status", "lr>0.1", "limit:1"}).out == "seed  STATUS\n   1  failed\n");
  REQUIRE(place.run({"note", "last", "one\ntwo"}).code == 0);
  CHECK(place.run({"ls", "--columns", "notes", "limit:1"}).out == "NOTES\none two\n");
  CHECK(place.list({"lr>0.3"}).empty());
  CHECK(place.list({"--sort", "-run.seed", "-n", "1"})[0]["cells"].is_null());
  CHECK(place.run({"ls", "--json", "--columns", "seed", "seed:1"}).json().at("runs")[0].at("cells") ==
        json{{"seed", 1}});
  const auto mistake = place.run({"ls", "lr>0.1", "staus:failed"});
  CHECK(mistake.code == 2);
  CHECK(mistake.err ==
        "error: no run has a field, recipe key or metric \"staus\"; did you mean \"status\"?\n  lr>0.1 staus:failed\n"
        "         ^^^^^\n");
}

TEST_CASE("expectation 20: output that cannot be written is an error") {
  const FailedRuns place(1);
  for (const std::string words : {"ls", "ls --json", "show last", "query --csv 'SELECT 1'", "help ls"}) {
    INFO(words);
    const std::string command = "cd '" + place.path().string() + "' && RUNNER_HOME='" + place.home().string() +
                                "' bin/runner " + words + " >/dev/full 2>errors; test $? = 4";
    CHECK(std::system(command.c_str()) == 0);
    CHECK(slurp(place.path() / "errors") == "error: cannot write to standard output: No space left on device\n");
  }
}

TEST_CASE("expectation 21: the JSON of every reading command has a schema, and is alone on stdout") {
  const FailedRuns place(2);
  const std::string other = place.list()[0]["id"];
  const std::vector<std::vector<std::string>> verbs = {{"ls"},
                                                       {"show", "last"},
                                                       {"compare"},
                                                       {"diff", "last", other},
                                                       {"query"},
                                                       {"tail"},
                                                       {"gc", "-n"},
                                                       {"rm", "-n", "last"},
                                                       {"note", "last"},
                                                       {"strategies"},
                                                       {"doctor"},
                                                       {"tag", "last", "+x"},
                                                       {"recommend", "tiny.toml"},
                                                       {"check", "tiny.toml"},
                                                       {"print", "tiny.toml"},
                                                       {"data", "tiny.toml"}};
  for (auto words : verbs) {
    INFO(words[0]);
    words.emplace_back("--json");
    const auto result = place.run(words);
    INFO(result.out << result.err);
    const json whole = json::parse(result.out, nullptr, /*allow_exceptions=*/false);
    if (whole.is_object()) {
      CHECK(whole.value("schema", 0) == 1);
      continue;
    }
    std::istringstream lines(result.out);  // one object for each line
    size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
      REQUIRE(value.is_object());
      CHECK(value.value("schema", 0) == 1);
    }
    CHECK(count > 0);
  }
}

TEST_CASE("a run without a name in its recipe gets another one when it is trained again") {
  const FailedRuns place(1);
  CHECK(place.run({"query", "--csv", "SELECT count(*) AS n FROM params WHERE name = 'run.name'"}).out == "n\n0\n");
  CHECK(place.run({"rerun", "last"}).err.find("`runner diff ") != std::string::npos);
  const json runs = place.list();
  REQUIRE(runs.size() == 2);
  CHECK(runs[0]["name"] != runs[1]["name"]);
  const auto diff = place.run({"diff", "last"});  // the newest run, which both words name
  CHECK(diff.out.starts_with("A  " + runs[0]["id"].get<std::string>()));
}

TEST_CASE("expectation 7: a run records who started it, and the variables that change how it computes") {
  const FailedRuns place(0);
  const std::string command =
      "cd '" + place.path().string() + "' && RUNNER_HOME='" + place.home().string() +
      "' NCCL_DEBUG=WARN HARMLESS=1 SLURM_JWT=eyJsecretsecret "
      "CUDA_NOTE='note: ghp_0123456789abcdefghijABCDEFGHIJ012345' bin/runner run tiny.toml 2>errors";
  CHECK(std::system(command.c_str()) != 0);
  const json run = place.run({"show", "last", "--json"}).json();
  CHECK(run.at("environment").at("NCCL_DEBUG") == "WARN");
  CHECK_FALSE(run.at("environment").contains("HARMLESS"));
  CHECK(run.at("environment").at("SLURM_JWT") == "***");
  CHECK(run.at("environment").at("CUDA_NOTE") == "note: ***");
  CHECK_FALSE(run.at("user").get<std::string>().empty());
}

TEST_CASE("a ledger with the trash only says so") {
  const FailedRuns place(1);
  place.run({"rm", "last"});
  CHECK(place.run({"ls"}).err ==
        "no runs in " + place.home().string() + "; 1 run in the trash, which `runner ls deleted:yes` lists\n");
}

TEST_CASE("a filter that the shell takes for a redirection is refused") {
  const FailedRuns place(1);
  const std::string command = "cd '" + place.path().string() + "' && RUNNER_HOME='" + place.home().string() +
                              "' bin/runner ls lr >0.1 2>errors; test $? = 2";
  CHECK(std::system(command.c_str()) == 0);
  CHECK(slurp(place.path() / "errors") ==
        "error: the shell took `>0.1` as a redirection into the file 0.1: quote the filter, as in 'lr>0.1'\n");
}

TEST_CASE("expectation 25: a query prints a table, JSON or CSV, and Ctrl-C ends it") {
  const FailedRuns place(1);
  CHECK(place.run({"query", "SELECT status, steps, NULL AS x FROM runs"}).out ==
        "status  steps  x\nfailed      0  -\n");
  // A table is printed while the query goes on, and later rows keep the widths of earlier ones.
  const std::string numbers =
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'x' AS x FROM n";
  const auto many = place.run({"query", numbers + " LIMIT 2500"}).out;
  CHECK((many.starts_with("   i  x\n   1  x\n") && many.ends_with("\n2500  x\n")));
  CHECK_THAT(many, ContainsSubstring("\n 999  x\n1000  x\n1001  x\n"));
  CHECK(std::ranges::count(many, '\n') == 2501);
  const std::string endless_table = "cd '" + place.path().string() + "' && RUNNER_HOME='" + place.home().string() +
                                    "' timeout 20 bin/runner query \"" + numbers + "\" | head -n 3000 >many";
  CHECK(std::system(endless_table.c_str()) == 0);
  CHECK(std::ranges::count(slurp(place.path() / "many"), '\n') == 3000);
  CHECK(place.run({"query", "--csv", "SELECT 'a,b' AS t, 0.1 AS v"}).out == "t,v\n\"a,b\",0.1\n");
  CHECK(place.run({"query", "DELETE FROM run"}).err == "error: DELETE is not allowed: runner query only reads\n");
  CHECK(place.run({"query"}).out.starts_with("runs: one row for each run"));
  CHECK(place.list().size() == 1);
  const pid_t endless =
      place.start({"query", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(endless, SIGINT);
  int status = 0;
  REQUIRE(::waitpid(endless, &status, 0) == endless);
  CHECK((WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)) == 130);
}

TEST_CASE("expectation 38: secrets are neither in the ledger nor readable by others in the run's folder") {
  const FailedRuns place(0);
  const std::string secret = "hunter2-hunter2";
  place.write("hook.lua",
              "return { name = \"hook\", options = { api_token = {type = \"string\", default = \"\"} }, "
              "on_train_end = function() end }\n");
  place.run({"run", "tiny.toml", "--set", "hooks.files=[\"hook.lua\"]", "hooks.hook.api_token=" + secret});
  const json runs = place.list();
  REQUIRE(runs.size() == 1);
  const json shown = place.run({"show", "last", "--json"}).json();
  INFO(shown.dump());
  CHECK(shown.dump().find(secret) == std::string::npos);
  CHECK(shown.at("redacted") == json{"hooks.hook.api_token"});
  CHECK(slurp(place.home() / "ledger.db").find(secret) == std::string::npos);
  std::vector<std::string> with_secret;
  for (const auto& entry : fs::recursive_directory_iterator(place.home() / "runs")) {
    if (!entry.is_regular_file() || slurp(entry.path()).find(secret) == std::string::npos) continue;
    INFO(entry.path().string());
    with_secret.push_back(entry.path().filename().string());
    CHECK((entry.status().permissions() & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none);
  }
  std::ranges::sort(with_secret);
  CHECK(with_secret == std::vector<std::string>{"recipe.toml", "resolved.toml"});  // a resume needs them
}
