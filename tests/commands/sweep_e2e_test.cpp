// Sweeps from the command line: every method, SIGKILL at random moments, failures, device slots, and the output.
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <set>

#include "runner/ledger/sqlite.hpp"
#include "runner/ledger/sweeps.hpp"
#include "tests/commands/sweep_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using nlohmann::json;

namespace {

void write_sweep(const Workplace& place, const std::string& method, const std::string& rest, int steps = 3) {
  write_tiny_recipe(place);
  place.write("sweep.toml", "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = " + method +
                                "\nset = { devices = 1, \"train.max_steps\" = " + std::to_string(steps) +
                                ", \"checkpoint.save_at_end\" = true }\n" + rest);
}

const std::string lr_space = "[sweep.space]\n\"optimizer.lr\" = { log_uniform = [1e-5, 1e-1] }\n";

}  // namespace

TEST_CASE("a sweep of each method without checkpoints runs to its end", "[e2e][sweep]") {
  for (const char* method : {"\"grid\"", "\"random\"", "\"sobol\"", "{ name = \"tpe\", n_startup_trials = 4 }"}) {
    INFO(method);
    Workplace place;
    place.replace_worker(made_up_worker);
    bool grid = std::string(method) == "\"grid\"";
    write_sweep(place, method,
                grid ? "[sweep.space]\n\"optimizer.lr\" = { log_uniform = [1e-5, 1e-1], points = 9 }\n"
                     : "budget = { trials = 9 }\nparallel = 2\n" + lr_space);
    auto result = place.run({"sweep", "run", "sweep.toml", "--json"});
    INFO(result.err);
    REQUIRE(result.code == 0);
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

TEST_CASE("a sweep of 40 trials killed at ten moments ends like an undisturbed one", "[e2e][sweep]") {
  auto prepare = [](Workplace& place) {
    place.replace_worker(made_up_worker);
    write_sweep(place, "\"random\"", "seed = 4\nparallel = 2\nbudget = { trials = 40 }\n" + lr_space);
  };
  Workplace undisturbed;
  prepare(undisturbed);
  auto whole = undisturbed.run({"sweep", "run", "sweep.toml"});
  INFO(whole.err);
  REQUIRE(whole.code == 0);

  Workplace place;
  prepare(place);
  std::mt19937 random(Catch::getSeed());  // --rng-seed sets it
  std::uniform_int_distribution<int> moment(50, 600);
  for (int kill = 0; kill < 10; ++kill) {
    pid_t pid = kill == 0 ? place.start({"sweep", "run", "sweep.toml"}) : place.start({"sweep", "resume"});
    if (kill == 0) REQUIRE(wait_until([&] { return first_trial_began(place); }, 30));
    std::this_thread::sleep_for(std::chrono::milliseconds(moment(random)));
    ::kill(pid, SIGKILL);
    place.finish(pid);
    // Its trials and their workers end with it.
    CHECK(wait_until([&] { return processes_of(place.path()) == 0; }, 5));
    auto sweep = status_of(place).at("sweep");
    CHECK((sweep.at("status") == "lost" || sweep.at("status") == "finished"));
  }
  auto result = place.run({"sweep", "resume"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(final_table(place) == final_table(undisturbed));
  runner::Sweeps store(place.home().string(), runner::Ledger::Mode::read);
  std::map<int64_t, int> ended;
  for (const auto& [trial, entry] : store.history(store.find("last").id)) ended[trial] += entry.at("kind") == "ended";
  CHECK(ended.size() == 40);
  for (const auto& [trial, times] : ended) CHECK(times == 1);
  CHECK(place.run({"sweep", "resume"}).code == 0);  // nothing is left to do
  CHECK(final_table(place) == final_table(undisturbed));
}

TEST_CASE("Ctrl-C leaves a sweep that can be resumed, and stop does the same from another shell", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_sweep(place, "\"random\"", "parallel = 2\nbudget = { trials = 6 }\n" + lr_space);
  pid_t pid = place.start({"sweep", "run", "sweep.toml", "--name", "s1"}, "sweep", {{"PAUSE", "0.2"}});
  REQUIRE(wait_until([&] { return first_trial_began(place); }, 30));
  const auto named = [&] { return place.run({"ls", "name:s1-0000", "--json"}).json().at("runs").size() == 1; };
  CHECK(wait_until(named, 30));  // its row comes a little later
  CHECK_THAT(place.run({"sweep", "resume"}).err,
             ContainsSubstring("is still running, as process " + std::to_string(pid)));
  ::kill(pid, SIGINT);
  auto result = place.finish(pid, "sweep");
  CHECK(result.code == 130);
  CHECK_THAT(result.err, ContainsSubstring("continue with: runner sweep resume "));
  CHECK(status_of(place).at("sweep").at("status") == "interrupted");
  CHECK(status_of(place).at("sweep").at("message") == "stopped by Ctrl-C");
  CHECK_THAT(place.run({"ls", "--json"}).out, !ContainsSubstring("SIGTERM"));  // its trials got the same signal
  CHECK(status_of(place).at("sweep").at("counts").at("waiting").get<int>() >= 1);
  CHECK(status_of(place).at("sweep").at("counts").at("failed") == 0);

  pid = place.start({"sweep", "resume"}, "sweep", {{"PAUSE", "0.2"}});
  REQUIRE(wait_until([&] { return status_of(place).at("sweep").at("counts").at("running") != 0; }, 30));
  {                        // the pid of a sweep in another container may be another process here
    ::kill(pid, SIGSTOP);  // its heartbeat would notice that the sweep has another process
    runner::sqlite::Database ledger(place.home() / "ledger.db", runner::sqlite::Access::existing);
    ledger.run("UPDATE sweep SET pid_namespace = 'pid:[1]'");
    auto refused = place.run({"sweep", "stop"});
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("runs as process " + std::to_string(pid) + " in another container on "));
    ledger.run("UPDATE sweep SET pid_namespace = ?", runner::this_process().pid_namespace);
    const auto late = place.run({"sweep", "stop", "--timeout", "1s"});
    CHECK(late.code == 4);
    CHECK_THAT(late.err, ContainsSubstring("(process " + std::to_string(pid) + ") still runs after 1s: "));
    ::kill(pid, SIGCONT);
  }
  auto stopped = place.run({"sweep", "stop", "--json"});
  CHECK(stopped.code == 0);
  CHECK((stopped.json().at("status") == "interrupted" || stopped.json().at("was") == "interrupted"));
  const auto ended = place.finish(pid, "sweep");
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK(status_of(place).at("sweep").at("status") == "interrupted");
  result = place.run({"sweep", "resume", "--json"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.json().at("sweep").at("counts").at("finished") == 6);
}

TEST_CASE("Ctrl-Z suspends the trials of a sweep, and the pause does not count as time of a trial", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_sweep(place, "\"random\"", "parallel = 2\nbudget = { trials = 2, trial_time = \"5s\" }\n" + lr_space);
  pid_t pid = place.start({"sweep", "run", "sweep.toml"}, "sweep", {{"PAUSE", "0.5"}});
  auto file_of = [](pid_t process, const char* name) { return slurp("/proc/" + std::to_string(process) + "/" + name); };
  std::vector<pid_t> workers;
  REQUIRE(wait_until(
      [&] {
        workers.clear();
        for (pid_t trial : children_of(pid))
          for (pid_t child : children_of(trial))
            if (file_of(child, "cmdline").find(place.worker().string()) != std::string::npos) workers.push_back(child);
        return workers.size() == 2;
      },
      30));
  auto stopped = [&](pid_t process) { return file_of(process, "stat").find(") T ") != std::string::npos; };
  ::kill(pid, SIGTSTP);
  CHECK(wait_until([&] { return stopped(pid); }, 10));
  for (pid_t trial : children_of(pid)) CHECK(stopped(trial));
  for (pid_t worker : workers) CHECK(wait_until([&] { return stopped(worker); }, 10));
  std::this_thread::sleep_for(std::chrono::seconds(5));
  ::kill(pid, SIGCONT);
  auto result = place.finish(pid, "sweep");
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(status_of(place).at("sweep").at("counts").at("finished") == 2);
}

TEST_CASE("failures have classes, and retry runs the failed trials again with their numbers", "[e2e][sweep]") {
  Workplace place;
  const std::string find_seed =
      "while [ $# -gt 0 ]; do [ \"$1\" = --run-dir ] && dir=$2; shift; done\n"
      "seed=$(sed -n 's/^seed = //p' $dir/resolved.toml)\n"
      "fail() { emit '{\"event\":\"failed\",\"kind\":\"'$1'\",\"message\":\"on purpose\"}'; exit $2; }\n"
      "case $seed in\n1) fail oom 1 ;;\n2) fail nonfinite 1 ;;\n3) fail usage 2 ;;\n4) fail environment 4 ;;\n"
      "5) kill -11 $$ ;;\n6) sleep 30 ;;\n7) exit 3 ;;\nesac\n";
  place.replace_worker(find_seed + "emit '{\"event\":\"ready\",\"steps\":1}'");
  write_sweep(
      place, "\"grid\"",
      "parallel = 1\nbudget = { trial_time = \"2s\" }\n[sweep.space]\n\"run.seed\" = [1, 2, 3, 4, 5, 6, 7, 8]\n");
  auto result = place.run({"sweep", "run", "sweep.toml", "--json"});
  INFO(result.err);
  CHECK(result.code == 1);  // no trial finished: the last one has no metric
  std::vector<std::string> reasons;
  auto trials = status_of(place).at("trials");
  for (const auto& trial : trials) reasons.push_back(trial.at("reason").is_null() ? "" : trial.at("reason"));
  CHECK(reasons == std::vector<std::string>{"out_of_memory", "nan", "user_error", "device", "other", "timeout",
                                            "preempted", "user_error"});
  CHECK_THAT(trials[0].at("message").get<std::string>(), ContainsSubstring("on purpose"));
  CHECK_THAT(place.run({"sweep", "status"}).out, ContainsSubstring("on purpose"));
  CHECK_THAT(trials[5].at("message").get<std::string>(), ContainsSubstring("took longer than budget.trial_time = "));
  auto show = [&](size_t trial) {
    return place.run({"show", trials[trial].at("run").get<std::string>(), "--json"}).json().at("message").dump();
  };
  CHECK_THAT(show(5), ContainsSubstring("its sweep stopped it: took longer than budget.trial_time = "));
  CHECK_THAT(show(6), !ContainsSubstring("its sweep"));
  CHECK_THAT(trials[7].at("message").get<std::string>(), ContainsSubstring("the run has no metric \"loss\""));

  place.replace_worker(made_up_worker);
  result = place.run({"sweep", "retry", "--json"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.json().at("sweep").at("counts").at("finished") == 8);
  json after = status_of(place);
  CHECK(after.at("trials").size() == 8);
  for (const auto& trial : after.at("trials")) CHECK(trial.at("tries") == 2);
}

TEST_CASE("a trial that fails before its run begins has the error as its reason", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker("");
  write_sweep(place, "\"random\"", "parallel = 1\nbudget = { trials = 1 }\n" + lr_space);
  auto result = place.run({"sweep", "run", "sweep.toml"});
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring(": device: " + place.worker().string() + " is missing: build it"));
}

TEST_CASE("a trial whose second try was interrupted is tried again", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker("exit 7");
  write_sweep(place, "\"random\"", "parallel = 1\nbudget = { trials = 2 }\n" + lr_space);
  CHECK(place.run({"sweep", "run", "sweep.toml"}).code == 1);
  for (bool hard : {false, true}) {
    place.replace_worker("exec sleep 60");
    pid_t pid = place.start({"sweep", hard ? "resume" : "retry"});
    REQUIRE(wait_until([&] { return status_of(place).at("sweep").at("counts").at("running") == 1; }, 30));
    ::kill(pid, hard ? SIGKILL : SIGINT);
    place.finish(pid);
    CHECK(wait_until([&] { return processes_of(place.path()) == 0; }, 10));
    if (!hard) continue;
    CHECK(status_of(place).at("sweep").at("counts").at("lost") == 1);
    CHECK_THAT(place.run({"sweep", "status"}).out, ContainsSubstring("last heartbeat after "));
  }
  place.replace_worker(made_up_worker);
  auto result = place.run({"sweep", "resume", "--json"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.json().at("sweep").at("counts").at("finished") == 1);
  CHECK(result.json().at("sweep").at("counts").at("failed") == 1);  // its second try had not started
  result = place.run({"sweep", "retry", "--json"});
  INFO(result.err);
  CHECK(result.json().at("sweep").at("counts").at("finished") == 2);
}

TEST_CASE("a device slot is not used after three quick failures in a row", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker("exit 7");
  write_sweep(place, "\"random\"", "parallel = 2\nbudget = { trials = 30 }\n" + lr_space);
  auto result = place.run({"sweep", "run", "sweep.toml", "--json"});
  INFO(result.err);
  CHECK(result.code == 4);
  CHECK_THAT(result.err,
             ContainsSubstring("cpu:0 is no longer used: 3 trials in a row failed on it within a minute each"));
  CHECK_THAT(result.err, ContainsSubstring("exited with code 7"));
  auto sweep = result.json().at("sweep");
  CHECK(sweep.at("status") == "failed");
  CHECK(sweep.at("counts").at("failed") == 6);
  place.replace_worker(made_up_worker);
  result = place.run({"sweep", "resume", "--json"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.json().at("sweep").at("counts").at("finished") == 24);
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
    auto result = place.run({"sweep", "run", "sweep.toml"});
    INFO(result.err);
    REQUIRE(result.code == 0);
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

TEST_CASE("a killed sweep continues its trials from their checkpoints, with the same values", "[e2e][sweep]") {
  auto prepare = [](Workplace& place) {
    write_sweep(place, "\"sobol\"", "parallel = 1\nbudget = { trials = 3 }\n" + lr_space, 60);
    auto text = slurp(place.path() / "tiny.toml");
    place.write("tiny.toml", text + "[checkpoint]\nevery_n_steps = 5\n");
  };
  Workplace undisturbed, place;
  prepare(undisturbed);
  auto whole = undisturbed.run({"sweep", "run", "sweep.toml"});
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  prepare(place);
  pid_t pid = place.start({"sweep", "run", "sweep.toml"});
  auto checkpointed = [&] {
    if (!fs::exists(place.home() / "runs")) return false;
    for (const auto& run : fs::directory_iterator(place.home() / "runs"))
      if (fs::exists(run.path() / "checkpoints/step-000005")) return true;
    return false;
  };
  REQUIRE(wait_until(checkpointed, 60));
  ::kill(pid, SIGKILL);
  place.finish(pid);
  auto result = place.run({"sweep", "resume"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(final_table(place) == final_table(undisturbed));
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
  CHECK_FALSE(fs::exists(place.home()));

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
  CHECK_FALSE(fs::exists(place.home()));
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
  auto swept = place.run({"sweep", "run", "sweep.toml"});
  INFO(swept.err);
  REQUIRE(swept.code == 0);
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
