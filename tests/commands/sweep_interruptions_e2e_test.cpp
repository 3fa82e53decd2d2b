// Sweeps that do not run undisturbed: SIGKILL at random moments, Ctrl-C and Ctrl-Z, trials that fail, and devices that fail.
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "runner/ledger/sqlite.hpp"
#include "runner/ledger/sweeps.hpp"
#include "tests/commands/sweep_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

TEST_CASE("a sweep of 40 trials killed at ten moments ends like an undisturbed one", "[e2e][sweep]") {
  auto prepare = [](Workplace& place) {
    place.replace_worker(made_up_worker);
    write_sweep(place, "\"random\"", "seed = 4\nparallel = 2\nbudget = { trials = 40 }\n" + lr_space);
  };
  Workplace undisturbed;
  prepare(undisturbed);
  succeed(undisturbed, {"sweep", "run", "sweep.toml"});

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
  succeed(place, {"sweep", "resume"});
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
  result = succeed(place, {"sweep", "resume", "--json"});
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
  result = succeed(place, {"sweep", "retry", "--json"});
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
  auto result = succeed(place, {"sweep", "resume", "--json"});
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
  result = succeed(place, {"sweep", "resume", "--json"});
  CHECK(result.json().at("sweep").at("counts").at("finished") == 24);
}

TEST_CASE("a killed sweep continues its trials from their checkpoints, with the same values", "[e2e][sweep]") {
  auto prepare = [](Workplace& place) {
    write_sweep(place, "\"sobol\"", "parallel = 1\nbudget = { trials = 3 }\n" + lr_space, 60);
    auto text = slurp(place.path() / "tiny.toml");
    place.write("tiny.toml", text + "[checkpoint]\nevery_n_steps = 5\n");
  };
  Workplace undisturbed, place;
  prepare(undisturbed);
  succeed(undisturbed, {"sweep", "run", "sweep.toml"});
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
  succeed(place, {"sweep", "resume"});
  CHECK(final_table(place) == final_table(undisturbed));
}
