// The executor starts and ends trials. A shell script replaces `runner`, and the tests write the runs into the ledger.
#include "runner/sweep/executor.hpp"

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/ledger/sqlite.hpp"
#include "runner/sweep/sweep_lock.hpp"
#include "tests/checkpoint/support.hpp"
#include "tests/sweep/sweep_place.hpp"

using namespace runner;
using namespace runner::sweep;
using nlohmann::json;

namespace {

/// A sweep over recipes of ten steps. It is in the ledger but no trial runs yet.
struct Begun : testing::SweepPlace {
  explicit Begun(const std::string& keys) {
    file = parse_sweep("[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\n" + keys +
                           "\n[sweep.space]\n\"run.seed\" = { integer = [1, 1000] }\n",
                       path / "s.toml");
    id = store.begin({file.name, file.seed, {{"source", file.source}}, "[run]\n"});
    search.emplace(file.make_search());
  }

  int64_t propose() {
    auto trial = search->propose().trial;
    store.propose(id, trial.number, trial.parameters, to_json(proposed(trial)));
    return trial.number;
  }
  void report(int64_t trial, int64_t step, double value) {
    store.report(id, trial, to_json(*search->report(trial, step, value)));
  }
  /// Adds a run of the trial to the ledger, with `loss` at step 10.
  std::string run(int64_t trial, const std::string& status, double loss, const json& failure = {}) {
    store.start(id, trial, "cpu:0");
    Ledger ledger(home, Ledger::Mode::write);
    NewRun row;
    row.name = "trial";
    row.run_dir_root = home + "/runs";
    row.sweep = id;
    row.trial = trial;
    std::string run = ledger.begin_run(row);
    ledger.begin_attempt(run, "start");
    ledger.metrics(run, {{"loss", 10, loss}});
    ledger.annotate(run, "measured", {{"failure", failure}});
    ledger.finish_run(run, status, status == "finished" ? 0 : 1, "");
    return run;
  }
  /// Executes the sweep with `script` as the program that runs the trials.
  ExecutionEnd go_on(const std::string& script, ExecutorHooks hooks = {}, std::vector<int64_t> again = {}) {
    const fs::path program = path / "program";
    write_file_atomic(program, "#!/bin/sh\n" + script + "\n");
    fs::permissions(program, fs::perms(0755));
    return execute(file, store, {home, program, id, std::move(again), {{"cpu:0", {}, {}}}, std::move(hooks)});
  }

  std::string home = path / "home";
  SweepFile file;
  Sweeps store{home, Ledger::Mode::write};
  std::string id;
  std::optional<Search> search;
};

}  // namespace

TEST_CASE("budget.trial_time includes the time before an interruption, and starts again for a retry") {
  Begun sweep("method = \"random\"\nbudget = { trials = 1, trial_time = \"1m\" }");
  auto trial = sweep.propose();
  auto run = sweep.run(trial, "interrupted", 3);
  runner::testing::publish_small(fs::path(sweep.home) / "runs" / run / "checkpoints", 10);
  sqlite::Database(fs::path(sweep.home) / "ledger.db", sqlite::Access::existing)
      .run("UPDATE attempt SET started = started - 100");
  CHECK(std::abs(sweep.store.trial_seconds(sweep.id, trial) - 100) < 5);
  const double begun = steady_seconds();
  sweep.go_on("exec sleep 20");
  CHECK(steady_seconds() - begun < 15);
  CHECK(sweep.store.trial(sweep.id, trial).reason == "timeout");
  CHECK(sweep.store.trial_seconds(sweep.id, trial) == 0);
  sweep.go_on("exit 0", {}, {trial});
  CHECK(sweep.store.trial(sweep.id, trial).status == "finished");
}

TEST_CASE("a failure that the sweep did not observe also has a class") {
  Begun sweep("method = \"random\"\nbudget = { trials = 1 }");
  auto trial = sweep.propose();
  sweep.run(trial, "failed", 3, {{"kind", "nonfinite"}, {"message", "loss is NaN"}});
  sweep.go_on("exit 9");
  CHECK(sweep.store.trial(sweep.id, trial).status == "failed");
  CHECK(sweep.store.trial(sweep.id, trial).reason == "nan");
}

TEST_CASE("a trial whose process dies after its run was recorded as finished is finished") {
  Begun sweep("method = \"random\"\nbudget = { trials = 1 }");
  ExecutorHooks hooks;
  hooks.on_start = [&](const TrialState& trial, const std::string&, bool) {
    sweep.run(trial.trial.number, "finished", 3);
    write_file_atomic(sweep.path / "recorded", "");
  };
  sweep.go_on("while [ ! -e " + (sweep.path / "recorded").string() + " ]; do sleep 0.01; done; kill -9 $$", hooks);
  auto trial = sweep.store.trial(sweep.id, 0);
  CHECK(trial.status == "finished");
  CHECK(trial.value == 3);
  // A try that dies before it reopened the finished run has failed.
  sweep.go_on("kill -9 $$", {}, {0});
  CHECK(sweep.store.trial(sweep.id, 0).status == "failed");
}

TEST_CASE("the reason of a failure is how the trial ended, and not the beginning of its log") {
  Begun sweep("method = \"random\"\nbudget = { trials = 3 }\nparallel = 1");
  sweep.go_on(
      "[ -e $RUNNER_HOME/killed ] || { touch $RUNNER_HOME/killed; echo 'gpt 34.7 k parameters' >&2; kill -9 $$; }\n"
      "[ -e $RUNNER_HOME/left ] || { touch $RUNNER_HOME/left; echo 'gpt 34.7 k parameters' >&2; exit 7; }\n"
      "echo 'gpt 34.7 k parameters' >&2\n"
      "echo '{\"status\": \"failed\", \"failure\": {\"kind\": \"usage\", \"message\": \"no such file\"}}'\nexit 2");
  CHECK(sweep.store.trial(sweep.id, 0).message == "was killed by signal 9\nthe end of its log:\ngpt 34.7 k parameters");
  CHECK(sweep.store.trial(sweep.id, 1).message.starts_with("exited with code 7 and reported no reason\n"));
  CHECK(sweep.store.trial(sweep.id, 2).message == "no such file");
  CHECK(sweep.store.trial(sweep.id, 2).reason == "user_error");
}

TEST_CASE("a trial that fails while the sweep stops counts as failed") {
  Begun sweep("method = \"random\"\nbudget = { trials = 1 }");
  ExecutorHooks hooks;
  bool asked = false;
  hooks.on_tick = [&](const Search&, size_t) {
    if (!asked && fs::exists(sweep.path / "runs")) asked = ::raise(SIGTERM) == 0;
  };
  auto end = sweep.go_on(
      "trap 'echo \"{\\\"status\\\":\\\"failed\\\",\\\"failure\\\":{\\\"kind\\\":\\\"nonfinite\\\"}}\"; exit 1' TERM\n"
      "touch " +
          (sweep.path / "runs").string() + "\nfor i in $(seq 400); do sleep 0.05; done",
      hooks);
  CHECK(end.status == "interrupted");
  CHECK(sweep.store.trial(sweep.id, 0).status == "failed");
  CHECK(sweep.store.trial(sweep.id, 0).reason == "nan");
}

TEST_CASE("a trial stopped at its last step counts as finished") {
  const std::string asha =
      "method = { name = \"asha\", min_steps = STEPS, reduction_factor = 2 }\nbudget = { trials = 2 }";
  auto with = [&](const std::string& steps) {
    auto text = asha;
    return text.replace(text.find("STEPS"), 5, steps);
  };
  SECTION("stopped by a report") {
    for (const char* steps : {"10", "5"}) {
      Begun sweep(with(steps));
      for (double loss : {1.0, 2.0}) sweep.run(sweep.propose(), "interrupted", loss);
      auto calls = (sweep.path / "calls").string();  // the second trial is the worse one
      sweep.go_on(std::string("trap 'exit 3' TERM\necho x >>") + calls + "\necho \"{\\\"step\\\":" + steps +
                  ",\\\"value\\\":$(wc -l <" + calls + ")}\"\nsleep 0.5");
      CHECK(sweep.store.trial(sweep.id, 0).status == "finished");
      CHECK(sweep.store.trial(sweep.id, 1).status == (std::string(steps) == "10" ? "finished" : "pruned"));
    }
  }
  SECTION("finished according to its run") {
    Begun sweep(with("10"));
    for (double loss : {1.0, 2.0}) {
      auto trial = sweep.propose();
      sweep.report(trial, 10, loss);
      sweep.run(trial, "finished", loss);
    }
    sweep.go_on("exit 9");
    CHECK(sweep.store.trial(sweep.id, 1).status == "finished");
    CHECK(sweep.store.trial(sweep.id, 1).value == 2.0);
  }
}

TEST_CASE("several processes train the trials of a shared sweep, which ends with the last one") {
  Begun other("method = \"random\"\nbudget = { trials = 3 }\nseed = 5");  // its file and its ledger
  std::vector<FirstTrial> trials;
  auto search = other.file.make_search();
  for (auto next = search.propose(); next.kind == Proposal::Kind::trial; next = search.propose())
    trials.push_back({next.trial.number, next.trial.parameters, to_json(proposed(next.trial))});
  NewSweep row{"shared", other.file.seed, {{"source", other.file.source}}, "[run]\n"};
  const std::string id = other.store.begin_shared(row, trials);
  CHECK(other.store.begin_shared(row, trials) == id);
  CHECK(other.store.named("shared") == id);
  CHECK(other.store.trials(id).size() == 3);
  other.id = id;

  const auto train = [&](int64_t trial, const std::string& script) {
    const fs::path program = other.path / "program";
    write_file_atomic(program, "#!/bin/sh\n" + script + "\n");
    fs::permissions(program, fs::perms(0755));
    Sweeps store(other.home, Ledger::Mode::write);
    store.join(id, trial);
    return execute(other.file, store,
                   {.home = other.home, .program = program, .sweep = id, .slots = {{"cpu:0", {}, {}}}, .only = trial});
  };
  const auto status = [&] { return other.store.find(id).status + ": " + other.store.find(id).message; };
  other.run(1, "finished", 2);  // its process ended before it told the sweep
  CHECK(train(1, "exit 9").status == "finished");
  CHECK(other.store.trial(id, 1).value == 2);
  CHECK(other.store.trial(id, 0).status == "waiting");
  CHECK(status() == "interrupted: 2 trials to begin");

  other.store.start(id, 2, "cpu:0");  // by another process
  train(0, "exit 9");
  CHECK(other.store.trial(id, 0).status == "failed");
  CHECK(status() == "running: ");  // that process becomes the owner
  other.run(2, "interrupted", 3);
  CHECK(train(2, "kill -TERM $PPID; exit 3").status == "interrupted");
  CHECK(other.store.trial(id, 2).status == "waiting");
  CHECK(status() == "interrupted: stopped by SIGTERM");
  other.run(2, "finished", 3);
  train(2, "exit 9");
  CHECK(status() == "finished: ");
  CHECK(other.store.trial(id, 2).value == 3);
}

TEST_CASE("locks keep the processes of a sweep apart") {
  const TemporaryFolder folder;
  const std::string path = folder.path.string();
  {
    const auto one = SweepLock::trial(path, 1), two = SweepLock::trial(path, 2);
    CHECK_THROWS_WITH(SweepLock::trial(path, 1), "another process trains trial 1 of the sweep in " + path);
    CHECK_THROWS_WITH(SweepLock::whole(path),
                      "other processes work on the sweep in " + path + ": wait for them, or stop them first");
  }
  {
    const auto whole = SweepLock::whole(path);
    CHECK_THROWS_WITH(SweepLock::trial(path, 1),
                      "another process runs all trials of the sweep in " + path + ", so trial 1 cannot be trained now");
    CHECK_THROWS_AS(SweepLock::whole(path), Error);
  }
  const auto free = SweepLock::trial(path, 1);
  CHECK_THROWS_WITH(SweepLock::whole(path + "/none"), "cannot open " + path + "/none/lock: No such file or directory");
}
