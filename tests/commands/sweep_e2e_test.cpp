// Sweeps from the command line: every method, the keys that can be varied, and the output.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "tests/commands/sweep_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using nlohmann::json;

TEST_CASE("a sweep of each method without checkpoints runs to its end", "[e2e][sweep]") {
  for (const char* method : {"\"grid\"", "\"random\"", "\"sobol\"", "{ name = \"tpe\", n_startup_trials = 4 }"}) {
    INFO(method);
    Workplace place;
    place.replace_worker(made_up_worker);
    bool grid = std::string(method) == "\"grid\"";
    write_sweep(place, method,
                grid ? "[sweep.space]\n\"optimizer.lr\" = { log_uniform = [1e-5, 1e-1], points = 9 }\n"
                     : "budget = { trials = 9 }\nparallel = 2\n" + lr_space);
    auto result = succeed(place, {"sweep", "run", "sweep.toml", "--json"});
    auto sweep = result.json().at("sweep");
    CHECK(sweep.at("status") == "finished");
    CHECK(sweep.at("counts").at("finished") == 9);
    auto trials = status_of(place).at("trials");
    REQUIRE(trials.size() == 9);
    for (const auto& trial : trials) {
      double off = std::log10(trial.at("parameters").at("optimizer.lr").get<double>()) + 3;
      CHECK(std::abs(trial.at("value").get<double>() - (1 + off * off + 2.0 / 3)) < 1e-6);
      CHECK(trial.at("step") == 3);
      CHECK(trial.at("tries") == 1);
      auto run = place.run({"show", trial.at("run").get<std::string>(), "--json"}).json();
      CHECK(run.at("sweep").at("id") == sweep.at("id"));
      CHECK(run.at("sweep").at("trial") == trial.at("trial"));
    }
    auto best = place.run({"sweep", "best", "--json"}).json().at("best");
    for (const auto& trial : trials) CHECK(best.at("value") <= trial.at("value"));
    auto recipe = place.run({"sweep", "best", "--toml"});
    CHECK_THAT(recipe.out, ContainsSubstring("/sweeps/" + sweep.at("id").get<std::string>() + "/recipe.toml"));
    place.write("best.toml", recipe.out);
    CHECK(place.run({"check", "best.toml"}).code == 0);
    auto importance = place.run({"sweep", "importance", "--json"}).json();
    CHECK(importance.at("measure") == "epsilon_squared");
    CHECK(importance.at("importance").contains("optimizer.lr"));
  }
}

TEST_CASE("a sweep without a reader of its output runs to its end", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_sweep(place, "\"random\"", "parallel = 1\nbudget = { trials = 2 }\n" + lr_space);
  auto result = place.finish(place.start({"sweep", "run", "sweep.toml", "--json"}, "command", {}, 0, /*unread=*/true));
  CHECK(result.code == 0);
  CHECK(status_of(place).at("sweep").at("counts").at("finished") == 2);
}

TEST_CASE("ASHA stops the worse trials early", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_sweep(place, "{ name = \"asha\", min_steps = 2, reduction_factor = 2 }",
              "budget = { trials = 8 }\nparallel = 1\n" + lr_space, 12);
  auto result = place.finish(place.start({"sweep", "run", "sweep.toml", "--json"}, "command", {{"PAUSE", "0.05"}}));
  INFO(result.err);
  REQUIRE(result.code == 0);
  auto counts = result.json().at("sweep").at("counts");
  CHECK(counts.at("pruned").get<int>() >= 3);
  CHECK(counts.at("finished").get<int>() >= 1);
  CHECK(counts.at("failed") == 0);
  json status = status_of(place);
  double best_at_two = INFINITY;
  for (const auto& trial : status.at("trials")) {
    double off = std::log10(trial.at("parameters").at("optimizer.lr").get<double>()) + 3, at_two = 2 + off * off;
    if (trial.at("trial") == 1) CHECK((trial.at("status") == "pruned") == (at_two > best_at_two));
    best_at_two = std::min(best_at_two, at_two);
    if (trial.at("status") == "pruned") CHECK(trial.at("step").get<int>() < 12);
    if (trial.at("status") == "finished") CHECK(trial.at("step") == 12);
  }
  int pruned = 0;
  const json listed = place.run({"ls", "--json"}).json();
  for (const auto& run : listed.at("runs")) pruned += run.at("status") == "pruned";
  CHECK(pruned == counts.at("pruned"));
  CHECK(place.run({"ls", "--status", "pruned", "--json"}).json().at("runs").size() == static_cast<size_t>(pruned));
  for (const auto& trial : status.at("trials")) {
    if (trial.at("status") != "pruned") continue;
    auto shown = place.run({"show", trial.at("run").get<std::string>(), "--json"}).json();
    CHECK(shown.at("status") == "pruned");
    CHECK_THAT(
        shown.at("message").get<std::string>(),
        ContainsSubstring("its sweep stopped it: pruned at step " + trial.at("step").dump() + ", where loss was "));
  }
}

TEST_CASE("keys that set defaults of others can be varied: family, optimizer, strategy, options of hooks",
          "[e2e][sweep]") {
  struct Case {
    std::string space;
    size_t trials;
  };
  const std::string both = R"("model.name" = ["gpt", "llama"]
"optimizer.name" = ["adamw", "sgd"]
"optimizer.momentum" = { choice = [0.5], when = { "optimizer.name" = "sgd" } }
)";
  const std::string strategies = R"("strategy.name" = ["single", "ddp", "fsdp"]
"strategy.sharding_strategy" = { choice = ["FULL_SHARD", "SHARD_GRAD_OP"], when = { "strategy.name" = "fsdp" } }
"devices.cpu_processes" = { choice = [2], when = { "strategy.name" = ["ddp", "fsdp"] } }
)";
  for (const auto& [space, trials] :
       {Case{both, 4}, Case{strategies, 4}, Case{"\"hooks.scale.factor\" = [0.0, 1.0]\n", 2},
        Case{"hooks.scale.factor = [0.0, 1.0]\n", 2}}) {
    INFO(space);
    Workplace place;
    write_tiny_recipe(place, "[hooks]\nfiles = [\"scale.lua\"]\n");
    place.write("scale.lua",
                "return {options = {factor = {type = 'number', default = 1}}, on_train_batch_start = function(ctx, _, "
                "options) ctx:set_lr(ctx.lr * options.factor) end}");
    place.write("sweep.toml",
                "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = \"grid\"\nparallel = 1\n"
                "set = { \"devices.cpu_processes\" = 1, \"train.max_steps\" = 3 }\n[sweep.space]\n" +
                    space);
    succeed(place, {"sweep", "run", "sweep.toml"});
    auto list = status_of(place).at("trials");
    REQUIRE(list.size() == trials);
    std::set<double> values;
    for (const auto& trial : list) {
      values.insert(trial.at("value").get<double>());
      std::vector<std::string> words = {"run",   "tiny.toml",        "--json", "--set", "devices.cpu_processes=1",
                                        "--set", "train.max_steps=3"};
      for (const auto& [name, value] : trial.at("parameters").items()) {
        words.push_back("--set");
        words.push_back(name + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
      }
      auto alone = place.run(words);
      INFO(alone.err);
      CHECK(alone.json().at("final_loss") == trial.at("value"));
    }
    if (space != strategies) CHECK(values.size() == trials);  // strategies differ only by rounding
  }
}

TEST_CASE("PBT's members continue from each other's checkpoints", "[e2e][sweep]") {
  Workplace place;
  write_sweep(place, "{ name = \"pbt\", population = 3, interval = 4, generations = 2, quantile = 0.34 }",
              "parallel = 2\nseed = 3\n[sweep.space]\n\"optimizer.lr\" = { log_uniform = [1e-6, 1e-1] }\n");
  auto result = place.run({"sweep", "run", "sweep.toml", "--json"});
  INFO(result.err << slurp(place.path() / "command.err"));
  REQUIRE(result.code == 0);
  auto trials = status_of(place).at("trials");
  REQUIRE(trials.size() == 6);
  auto parameter = [&](size_t trial) { return trials[trial].at("parameters").at("optimizer.lr").get<double>(); };
  std::set<std::string> sources;
  for (size_t i = 0; i < 6; ++i) {
    CHECK(trials[i].at("status") == "finished");
    CHECK(trials[i].at("step") == (i < 3 ? 4 : 8));
    auto run = place.run({"show", trials[i].at("run").get<std::string>(), "--json"}).json();
    CHECK(run.at("attempts")[0].at("from_step") == (i < 3 ? 0 : 4));
    if (i >= 3) sources.insert(run.at("attempts")[0].at("reason"));
  }
  CHECK(sources.size() == 2);  // the worst of three continued from the best
  int kept = 0;
  for (size_t i = 3; i < 6; ++i) kept += parameter(i) == parameter(i - 3);
  CHECK(kept == 2);
}

TEST_CASE("plan shows the trials and starts nothing, and mistakes are reported with their positions", "[e2e][sweep]") {
  Workplace place;
  write_sweep(place, "\"grid\"",
              "parallel = 2\nconstraints = [\"model.n_heads < 4 or train.global_batch_size > 12\"]\n"
              "[sweep.space]\n\"model.n_heads\" = [1, 2, 4]\n\"train.global_batch_size\" = [12, 24]\n");
  auto result = place.run({"sweep", "plan", "sweep.toml"});
  CHECK(result.code == 0);
  CHECK(result.out == R"(5 trials by grid, 2 at a time; the smallest of loss is best
TRIAL  model.n_heads  train.global_batch_size
    0              1                       12
    1              1                       24
    2              2                       12
    3              2                       24
    4              4                       24
)");
  auto plan = place.run({"sweep", "plan", "sweep.toml", "-n", "2", "--json"}).json();
  CHECK(plan.at("trials") == 5);
  CHECK(plan.at("slots") == json{"cpu:0", "cpu:1"});
  CHECK(plan.at("first").size() == 2);
  CHECK(place.untouched());

  write_sweep(place, "{ name = \"tpe\", n_startup_trials = 2 }", "budget = { trials = 9 }\nparallel = 2\n" + lr_space);
  result = place.run({"sweep", "plan", "sweep.toml"});
  CHECK_THAT(place.run({"sweep", "plan", "sweep.toml", "-n", "1"}).out,
             EndsWith("\nand 8 more; the last 7 depend on results\n"));
  CHECK_THAT(result.out, ContainsSubstring("\n    1  ") && !ContainsSubstring("\n    2  ") &&
                             EndsWith("\nand 7 more, which depend on their results\n"));

  write_sweep(place, "\"grid\"", "[sweep.space]\n\"model.n_heads\" = [1, 3]\n");
  result = place.run({"sweep", "run", "sweep.toml"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("sweep.toml:7:1: error: trials with model.n_heads=3 would fail: "));
  CHECK(place.untouched());
  result = place.run({"run", "sweep.toml"});
  CHECK_THAT(result.err, ContainsSubstring("[sweep] makes this a sweep file: use `runner sweep run FILE`"));
  CHECK_THAT(place.run({"sweep", "status"}).err, ContainsSubstring("there is no sweep \"last\""));
}

TEST_CASE("sweep best prints a command and a recipe that repeat the best trial with the same value", "[e2e][sweep]") {
  Workplace place;
  write_tiny_recipe(place);
  // The recipe does not set the number of threads. With long sequences the number changes the last digits.
  std::string text = slurp(place.path() / "tiny.toml");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"threads_per_rank = 1\n", ""},
                                 {"dim = 32", "dim = 64"},
                                 {"max_seq_len = 32", "max_seq_len = 256"}})
    text.replace(text.find(from), from.size(), to);
  place.write("tiny.toml", text);
  place.write(
      "sweep.toml",
      "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = \"grid\"\nparallel = 3\nset = { devices = 1, "
      "\"run.notes\" = \"it's one\", \"train.max_steps\" = 6 }\n[sweep.space]\n\"optimizer.lr\" = [1e-3, "
      "1e-2]\n");
  succeed(place, {"sweep", "run", "sweep.toml"});
  auto best = place.run({"sweep", "best", "--json"}).json().at("best");
  auto printed = place.run({"sweep", "best"}).out;
  const std::string command = best.at("command");
  CHECK_THAT(printed, ContainsSubstring("\n" + command + "\n"));
  CHECK_THAT(command, ContainsSubstring(" --set devices.threads_per_rank=1") && !ContainsSubstring("--sweep") &&
                          !ContainsSubstring("--json"));
  auto number_of = [&](const std::string& line) {
    place.write("again.sh", "cd " + place.path().string() + "; RUNNER_HOME=" + place.home().string() +
                                " PATH=" RUNNER_BINARY_DIR "/bin:$PATH " + line + " >again.out 2>&1\n");
    int status = std::system(("sh " + (place.path() / "again.sh").string()).c_str());
    INFO(slurp(place.path() / "again.out"));
    REQUIRE(status == 0);
    return place.run({"show", "--json"}).json().at("final_loss").get<double>();
  };
  CHECK(number_of(command) == best.at("value").get<double>());
  place.write("best.toml", place.run({"sweep", "best", "--toml"}).out);
  CHECK(number_of("runner run best.toml") == best.at("value").get<double>());
  CHECK_THAT(place.run({"sweep", "status", "--csv"}).out,
             Catch::Matchers::StartsWith("trial,status,value,step,run,optimizer.lr\n0,finished,"));
}
