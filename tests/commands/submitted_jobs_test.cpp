// Jobs of `runner submit` in a Slurm that a script stands for: what reaches them, their ends and requeues, and sweeps as arrays.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/quoting.hpp"
#include "runner/ledger/sqlite.hpp"
#include "tests/commands/submit_support.hpp"
#include "tests/support/fake_slurm.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using nlohmann::json;

TEST_CASE("paths and values with quotes, spaces, dollars and line breaks reach the job unchanged") {
  Workplace place;
  const std::string hostile = "a 'b' \"c\" $HOME `id` \\ ; #\nd";
  fs::create_directories(place.path() / hostile);
  write_tiny_recipe(place);
  const fs::path folder = place.path() / hostile;
  fs::rename(place.path() / "tiny.toml", folder / (hostile + ".toml"));
  fs::rename(place.path() / "text.txt", folder / "text.txt");
  // `program` records its arguments, and says that it knows no run.
  place.write("program",
              "#!/bin/bash\n[[ $1 == show ]] && exit 2\nprintf '%s\\0' \"$PWD\" \"$RUNNER_HOME\" \"$@\" >\"" +
                  (place.path() / "recorded").string() + "\"\n");
  fs::permissions(place.path() / "program", fs::perms(0755));
  const std::string note = "run.notes=\"it's $HOME\\n\"";
  const auto script = succeed(place,
                              {"submit", hostile + "/" + hostile + ".toml", "--print", "--program",
                               (place.path() / "program").string(), "--set", note, "devices.cpu_processes=1"},
                              {{"RUNNER_HOME", (folder / "home").string()}});
  CHECK_THAT(script.out, ContainsSubstring("#SBATCH --job-name=a__b___c___HOME__id________d\n"));
  place.write("job", script.out);
  const FakeSlurm slurm(place);
  std::string line = "cd / && env SLURM_JOB_ID=9 FAKE_JOB=9 SLURM_TASKS=1";
  for (const auto& [name, value] : slurm.variables()) line += " " + name + "=" + runner::shell_word(value);
  REQUIRE(std::system((line + " bash " + runner::shell_word((place.path() / "job").string())).c_str()) == 0);
  std::string expected;
  for (const std::string& word :
       {place.path().string(), (folder / "home").string(), std::string("run"), hostile + "/" + hostile + ".toml",
        std::string("--set"), note, std::string("--set"), std::string("devices.cpu_processes=1"), std::string("--set"),
        std::string("run.name=slurm-9-a__b___c___HOME__id________d-")})
    expected += word + '\0';
  expected.pop_back();
  const std::string recorded = slurp(place.path() / "recorded");
  CHECK(recorded.substr(0, expected.size()) == expected);
  CHECK(recorded.size() == expected.size() + 5);  // the tag
}

TEST_CASE("a job that cannot tell whether its run has begun does not begin it again") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("program",
              "#!/bin/bash\n[[ $1 == show ]] && { echo the ledger is locked >&2; exit 4; }\necho begun $1\n");
  fs::permissions(place.path() / "program", fs::perms(0755));
  const FakeSlurm slurm(place);
  REQUIRE(
      place.run({"submit", "tiny.toml", "--program", (place.path() / "program").string()}, slurm.variables()).code ==
      0);
  CHECK(slurm.code("41") == 4);
  CHECK_THAT(slurm.output("41"), StartsWith("the ledger is locked\njob 41: it is not known whether slurm-41-tiny-") &&
                                     EndsWith(" has begun (exit code 4)\n") && !ContainsSubstring("begun run"));
  // Without a ledger, both verbs say with code 2 that there is nothing of this name.
  CHECK(place.run({"show", "slurm-41-tiny", "--json"}).code == 2);
  CHECK(place.run({"sweep", "status", "slurm-41-tiny", "--json"}).code == 2);
}

TEST_CASE("a requeued job waits until the processes of its lost host count as gone") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_shared_sweep(place, "budget = { trials = 1 }\n");
  const std::vector<std::string> one_rank = {"--set", "run.name=mine", "devices.cpu_processes=1", "train.max_steps=3"};
  REQUIRE(place.run(with({"run", "tiny.toml"}, one_rank)).code == 0);
  REQUIRE(place.run({"sweep", "run", "sweep.toml", "--name", "all"}).code == 0);
  /// Makes the run and the sweep look as if a process on another host had trained them until so many seconds ago.
  const auto elsewhere = [&](double ago) {
    runner::sqlite::Database ledger(place.home() / "ledger.db", runner::sqlite::Access::existing);
    const double then = runner::wall_seconds() - ago;
    ledger.run("UPDATE attempt SET host = 'elsewhere', ended = NULL, heartbeat = ?", then);
    ledger.execute("UPDATE run SET status = 'running', ended = NULL");
    ledger.run("UPDATE sweep SET host = 'elsewhere', status = 'running', ended = NULL, heartbeat = ?", then);
  };
  elsewhere(0);
  CHECK_THAT(place.run({"resume", "mine"}).err, ContainsSubstring("is still running, as process "));
  CHECK(place.run({"sweep", "resume", "all"}, {{"SLURM_RESTART_COUNT", "0"}}).code == 2);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"resume", "mine"}, {"sweep", "resume", "all"}}) {
    elsewhere(295);
    const auto again = succeed(place, words, {{"SLURM_RESTART_COUNT", "1"}});
    CHECK_THAT(again.err, ContainsSubstring("Slurm has started this job again, and a process on another host counts as "
                                            "gone 5m 00s after its last heartbeat"));
  }
  CHECK(status_of(place).at("sweep").at("status") == "finished");
}

TEST_CASE("a job is submitted, its script is kept, and a machine without sbatch says how to get it") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_tiny_recipe(place);
  auto result = place.run({"submit", "tiny.toml"}, {{"PATH", place.path().string()}});
  CHECK(result.code == 4);
  CHECK(result.err ==
        "error: sbatch is not in PATH: this machine cannot submit jobs to Slurm. With --print, `runner submit` prints "
        "the script\n");
  CHECK_FALSE(fs::exists(place.home() / "submitted"));

  const FakeSlurm slurm(place);
  result = succeed(place, {"submit", "tiny.toml", "--json", "--set", "devices.cpu_processes=1"}, slurm.variables());
  const fs::path script = place.home() / "submitted/tiny.sbatch";
  const std::string name = result.json().at("run");
  CHECK_THAT(name, StartsWith("slurm-41-tiny-"));
  CHECK(result.json() ==
        json{{"schema", 1}, {"job", "41"}, {"script", script.string()}, {"run", name}, {"sweep", nullptr}});
  CHECK_THAT(result.err, ContainsSubstring("warning: sbatch: a warning\n"));
  CHECK_THAT(result.err, EndsWith("submitted job 41, whose run is " + name + "\nthe script: " + script.string() +
                                  "\nin the queue: squeue -j 41\nonce it runs: runner logs " + name + ", runner tail " +
                                  name + "\n"));
  CHECK((fs::status(script).permissions() & fs::perms::all) == fs::perms::owner_all);
  CHECK_THAT(slurm.calls(), StartsWith("sbatch --parsable " + script.string() + "\n"));
  INFO(slurm.output("41"));
  CHECK(slurm.code("41") == 0);
  const json run = place.run({"show", name, "--json"}).json();
  CHECK(run.at("status") == "finished");

  slurm.refuse("sbatch: error: invalid partition specified: x");
  result = place.run({"submit", "tiny.toml"}, slurm.variables());
  CHECK(result.code == 4);
  CHECK(result.err ==
        "error: sbatch failed with exit code 3: sbatch: error: invalid partition specified: x\nthe script: " +
            (place.home() / "submitted/tiny-2.sbatch").string() + "\n");
  CHECK(slurp(place.home() / "submitted/tiny-2.sbatch").starts_with("#!/bin/bash\n"));
  fs::remove(place.path() / "slurm/refuse");
  slurm.answer("welcome\n");
  result = place.run({"submit", "tiny.toml"}, slurm.variables());
  CHECK(result.code == 4);
  CHECK_THAT(result.err,
             ContainsSubstring("warning: welcome\n") &&
                 ContainsSubstring("error: sbatch printed no job number; `squeue --me` shows whether the job is "
                                   "there. The script: " +
                                   (place.home() / "submitted/tiny-3.sbatch").string()));
}

TEST_CASE("the jobs of an array train the trials of one sweep, each once") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_shared_sweep(place);
  write_tiny_recipe(place, "[logging]\nnotify = { on = \"end\", command = \"cat >>told.json\" }\n");
  const FakeSlurm slurm(place);
  auto variables = slurm.variables();
  variables["PAUSE"] = "0.1";
  auto result = succeed(place, {"submit", "sweep.toml", "--array", "2", "--json"}, variables);
  const std::string name = result.json().at("sweep");
  CHECK_THAT(name, StartsWith("slurm-41-sweep-"));
  CHECK(result.json().at("run").is_null());
  for (int trial = 0; trial < 4; ++trial) {
    const std::string job = "41_" + std::to_string(trial);
    INFO(slurm.output(job));
    CHECK(slurm.code(job) == 0);
  }
  const json status = status_of(place);
  CHECK(status.at("sweep").at("name") == name);
  CHECK(status.at("sweep").at("status") == "finished");
  CHECK(status.at("sweep").at("counts").at("finished") == 4);
  const json told = json::parse(slurp(place.path() / "told.json"));  // once, or the text would not be one JSON value
  CHECK(told.at("kind") == "end");
  std::set<std::string> runs;
  for (const auto& trial : status.at("trials")) {
    CHECK(trial.at("tries") == 1);
    runs.insert(trial.at("run").get<std::string>());
  }
  CHECK(runs.size() == 4);
  CHECK(place.run({"ls", "--json"}).json().at("runs").size() == 4);
  CHECK(place.run({"sweep", "status", "--all", "--json"}).json().at("sweeps").size() == 1);

  Workplace alone;  // one process runs the same trials
  alone.replace_worker(made_up_worker);
  write_shared_sweep(alone);
  REQUIRE(alone.run({"sweep", "run", "sweep.toml"}).code == 0);
  CHECK(final_table(place) == final_table(alone));
  // A job that runs again trains nothing, and tells the result.
  result = place.run({"sweep", "trial", "sweep.toml", "2", "--name", name, "--json"});
  CHECK(result.code == 0);
  CHECK(result.json().at("trial").at("tries") == 1);
  CHECK_THAT(place.run({"sweep", "trial", "sweep.toml", "4", "--name", name}).err,
             ContainsSubstring("has no trial 4: its trials are 0 to 3"));
  write_shared_sweep(place, "budget = { trials = 5 }\n");
  CHECK_THAT(place.run({"sweep", "trial", "sweep.toml", "2", "--name", name}).err,
             ContainsSubstring("sweep " + name +
                               " began with another text of sweep.toml: use the file with which it "
                               "began (") &&
                 ContainsSubstring("or another --name"));
  CHECK_THAT(alone.run({"sweep", "trial", "sweep.toml", "2", "--name", "sweep"}).err,
             ContainsSubstring("sweep sweep (`runner sweep run`) has one process for all of its trials: use another"));
}

TEST_CASE("a trial whose job was killed is lost, and a new job or a resumed sweep takes it up") {
  for (const bool by_job : {true, false}) {
    INFO("by a new job: " << by_job);
    Workplace place;
    place.replace_worker(made_up_worker);
    write_shared_sweep(place, "budget = { trials = 2 }\n");
    const FakeSlurm slurm(place);
    auto variables = slurm.variables();
    variables["PAUSE"] = "0.5";
    const auto submitted = place.run({"submit", "sweep.toml", "--array", "2", "--json"}, variables);
    REQUIRE(submitted.code == 0);
    const std::string name = submitted.json().at("sweep");
    const auto trains = [&](size_t trial) {
      const auto result = place.run({"sweep", "status", name, "--json"});
      return result.code == 0 && !result.json().at("trials").at(trial).at("run").is_null();
    };
    REQUIRE(wait_until([&] { return trains(0) && trains(1); }, 60));
    // Beside them, nobody else may work on these trials.
    auto beside = place.run({"sweep", "trial", "sweep.toml", "1", "--name", name});
    CHECK(beside.code == 2);
    CHECK_THAT(beside.err, ContainsSubstring("another process trains trial 1 of the sweep in "));
    CHECK_THAT(place.run({"sweep", "resume", name}).err,
               ContainsSubstring("and perhaps others: wait for them, or stop"));
    CHECK_THAT(place.run({"sweep", "stop", name}).err,
               ContainsSubstring("are trained by several processes: stop each of them (jobs of Slurm: scancel)"));
    const auto tasks = slurm.tasks("41_1");
    REQUIRE(tasks.size() == 1);
    ::kill(tasks[0], SIGKILL);
    CHECK(slurm.code("41_1") == 128 + SIGKILL);
    INFO(slurm.output("41_0"));
    CHECK(slurm.code("41_0") == 0);
    json status = status_of(place);
    CHECK(status.at("sweep").at("status") == "lost");
    CHECK(status.at("trials").at(0).at("status") == "finished");
    CHECK(status.at("trials").at(1).at("status") == "lost");
    if (!by_job) {  // one process that runs all trials can be stopped
      const pid_t pid = place.start({"sweep", "resume", name}, "whole", {{"PAUSE", "0.5"}});
      REQUIRE(wait_until([&] { return status_of(place).at("sweep").at("status") == "running"; }, 60));
      succeed(place, {"sweep", "stop", name});
      CHECK(place.finish(pid, "whole").code == 3);
    }
    const auto again = by_job ? place.run({"sweep", "trial", "sweep.toml", "1", "--name", name})
                              : place.run({"sweep", "resume", name});
    INFO(again.err);
    CHECK(again.code == 0);
    status = status_of(place);
    CHECK(status.at("sweep").at("status") == "finished");
    CHECK(status.at("sweep").at("counts").at("finished") == 2);
    CHECK(status.at("trials").at(0).at("tries") == 1);
    CHECK(status.at("trials").at(1).at("tries") >= 2);
  }
}

TEST_CASE("a preempted job of an array requeues itself and continues its trial") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_shared_sweep(place, "budget = { trials = 1 }\n");
  const FakeSlurm slurm(place);
  auto variables = slurm.variables();
  variables["PAUSE"] = "0.5";
  REQUIRE(place.run({"submit", "sweep.toml", "--array", "1"}, variables).code == 0);
  REQUIRE(wait_until([&] { return slurm.tasks("41_0").size() == 1 && first_trial_began(place); }, 60));
  ::kill(slurm.tasks("41_0")[0], SIGTERM);
  CHECK(slurm.code("41_0") == 0);
  INFO(slurm.output("41_0"));
  CHECK_THAT(slurm.calls(), ContainsSubstring("scontrol requeue 41_0\n"));
  CHECK_THAT(slurm.output("41_0"), ContainsSubstring("job 41_0: checkpoint saved, requeueing\n"));
  const json status = status_of(place);
  CHECK(status.at("sweep").at("status") == "finished");
  CHECK(status.at("trials").at(0).at("tries") == 2);
}

TEST_CASE("a job without an array runs all trials of a sweep, and its requeued self goes on") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_shared_sweep(place);
  const FakeSlurm slurm(place);
  auto variables = slurm.variables();
  variables["PAUSE"] = "0.3";
  REQUIRE(place.run({"submit", "sweep.toml", "--parallel", "2"}, variables).code == 0);
  REQUIRE(wait_until([&] { return slurm.tasks("41").size() == 1 && first_trial_began(place); }, 60));
  ::kill(slurm.tasks("41")[0], SIGTERM);
  CHECK(slurm.code("41") == 0);
  INFO(slurm.output("41"));
  CHECK_THAT(slurm.calls(), ContainsSubstring("scontrol requeue 41\n"));
  const json status = status_of(place);
  CHECK_THAT(status.at("sweep").at("name").get<std::string>(), StartsWith("slurm-41-sweep-"));
  CHECK(status.at("sweep").at("status") == "finished");
  CHECK(status.at("sweep").at("counts").at("finished") == 4);
  CHECK(place.run({"sweep", "status", "--all", "--json"}).json().at("sweeps").size() == 1);
}

TEST_CASE("a sweep that srun starts once trains its ranks itself, and one that it starts twice is refused") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_shared_sweep(place, "budget = { trials = 1 }\n");
  std::map<std::string, std::string> step = {{"SLURM_JOB_ID", "7"},          {"SLURM_STEP_ID", "0"},
                                             {"SLURM_PROCID", "0"},          {"SLURM_LOCALID", "0"},
                                             {"SLURM_NODEID", "0"},          {"SLURM_STEP_NUM_TASKS", "2"},
                                             {"SLURM_STEP_NUM_NODES", "1"},  {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                             {"SLURM_STEP_NODELIST", "here"}};
  auto result = place.run({"sweep", "run", "sweep.toml"}, step);
  CHECK(result.code == 2);
  CHECK_THAT(result.err,
             ContainsSubstring("slurm started this command 2 times, and one process runs the trials: start it once "
                               "(`runner submit` does, under Slurm)"));
  CHECK_FALSE(fs::exists(place.home() / "sweeps"));
  step["SLURM_STEP_NUM_TASKS"] = step["SLURM_STEP_TASKS_PER_NODE"] = "1";
  std::string text = slurp(place.path() / "sweep.toml");
  place.write("two.toml", text.replace(text.find("cpu_processes\" = 1"), 18,
                                       "cpu_processes\" = 2, \"devices.cluster\" = \"slurm\""));
  result = succeed(place, {"sweep", "run", "two.toml", "--name", "given", "--json"}, step);
  CHECK(result.json().at("sweep").at("name") == "given");
}
