// `runner submit`: the scripts that it writes, what it refuses, and jobs of a Slurm that a script stands for.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/quoting.hpp"
#include "runner/ledger/sqlite.hpp"
#include "tests/commands/sweep_support.hpp"
#include "tests/support/fake_slurm.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using nlohmann::json;

namespace {

std::string printed(const Workplace& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"submit", "tiny.toml", "--print"});
  auto result = place.run(words);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.out;
}

std::string refused(const Workplace& place, std::vector<std::string> words, const std::string& file = "tiny.toml") {
  words.insert(words.begin(), {"submit", file, "--print"});
  auto result = place.run(words);
  CHECK(result.out.empty());
  CHECK(result.code == 2);
  return result.err;
}

/// The script with the random end of the run's name replaced by "TAGS".
std::string masked(std::string script) {
  const size_t end = script.find('\n', script.find("\nname=slurm-") + 1);
  return script.replace(end - 4, 4, "TAGS");
}

/// Checks a script with bash, and with shellcheck if it is installed.
void check_shell(const Workplace& place, const std::string& script) {
  place.write("checked.sh", script);
  const std::string file = (place.path() / "checked.sh").string();
  CHECK(std::system(("bash -n '" + file + "'").c_str()) == 0);
  if (std::system("command -v shellcheck >/dev/null") != 0) return;
  const int status = std::system(("shellcheck '" + file + "' >'" + file + ".out' 2>&1").c_str());
  INFO(script << slurp(file + ".out"));
  CHECK(status == 0);
}

const std::vector<std::string> two_nodes = {
    "--set",   "devices.accelerator=cuda", "devices.devices=8", "devices.num_nodes=2", "train.global_batch_size=32",
    "--unset", "devices.threads_per_rank"};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void write_sweep_file(const Workplace& place, const std::string& keys = "budget = { trials = 4 }\n") {
  place.write("sweep.toml",
              "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = \"random\"\nseed = 4\nset = { "
              "\"devices.cpu_processes\" = 1, \"train.max_steps\" = 3, \"checkpoint.save_at_end\" = true }\n" +
                  keys + "[sweep.space]\n\"optimizer.lr\" = { log_uniform = [1e-5, 1e-1] }\n");
}

void write_shared_sweep(const Workplace& place, const std::string& keys = "budget = { trials = 4 }\n") {
  write_tiny_recipe(place);
  write_sweep_file(place, keys);
}

}  // namespace

TEST_CASE("the script of a recipe takes its numbers from the recipe") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string script = printed(place, {"--set", "run.name=a b", "train.max_time=1h", "--unset", "run.seed"});
  const std::string program = runner::shell_word(RUNNER_BINARY_DIR "/bin/runner");
  CHECK(masked(script) == R"(#!/bin/bash
# Written by `runner submit`, for sbatch. The job resumes after preemptions and time limits.
#
#SBATCH --job-name=a_b
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=01:12:00
#SBATCH --signal=TERM@90
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -u

cd )" + place.path().string() +
                              R"( || exit 4
export RUNNER_HOME=)" + place.home().string() +
                              R"(

# The name contains the job's number. A requeued job keeps its number, so it finds what it has begun.
job=$SLURM_JOB_ID
name=slurm-${job}-a_b-TAGS
look=()" + program + R"()
launch=(srun --cpus-per-task=1 )" +
                              program + R"sh()
problem=$("${look[@]}" show "$name" --json 2>&1 >/dev/null)
known=$?
if [ "$known" -eq 0 ]; then
  "${launch[@]}" resume "$name"
elif [ "$known" -eq 2 ]; then  # there is none of this name yet
  "${launch[@]}" run tiny.toml --set train.max_time=1h --unset run.seed --set "run.name=$name"
else
  echo "$problem" >&2
  echo "job $job: it is not known whether $name has begun (exit code $known)" >&2
  exit 4
fi
code=$?

# 3 = saved and resumable (preempted, or out of time). With other codes the job ends with the code of `runner`.
if [ "$code" -eq 3 ]; then
  echo "job $job: checkpoint saved, requeueing"
  scontrol requeue "$job"
fi
exit "$code"
)sh");
  check_shell(place, script);
  CHECK(script != printed(place, {"--set", "run.name=a b", "train.max_time=1h", "--unset", "run.seed"}));  // its tag
  CHECK_FALSE(fs::exists(place.home() / "ledger.db"));  // --print keeps nothing
  const auto notes = place.run({"submit", "tiny.toml", "--print", "--time", "10", "--set", "train.max_time=1h"}).err;
  CHECK(notes ==
        "note: train.max_time = 1h is longer than the job's time limit allows; the job requeues itself until it has "
        "ended\n");
  const auto fastest = with(two_nodes, {"--set", "selection.policy=fastest", "strategy=auto"});
  const auto planned = place.run(with({"submit", "tiny.toml", "--print"}, fastest));
  CHECK(planned.code == 0);
  CHECK_THAT(planned.err,
             StartsWith("note: the plan can only be made where the job runs: selection.policy = \"fastest\""));
  CHECK_THAT(refused(place, with(fastest, {"--set", "train.global_batch_size=33"})), ContainsSubstring("33"));
}

TEST_CASE("the script of a recipe for GPUs, with every option of the job") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string script = printed(place, with(two_nodes, {"--partition",
                                                             "gpu",
                                                             "--account",
                                                             "phys",
                                                             "--qos",
                                                             "high",
                                                             "--time",
                                                             "1d12h",
                                                             "--cpus-per-task",
                                                             "6",
                                                             "--mail-user",
                                                             "me@lab.example",
                                                             "--dependency",
                                                             "afterok:7",
                                                             "--output",
                                                             "out \"1\".txt",
                                                             "--sbatch=--constraint=\"a100&ib\"",
                                                             "--sbatch",
                                                             "--mem=0",
                                                             "--set",
                                                             "train.grace_time=5m",
                                                             "--accept-changed-data",
                                                             "--checkpoint",
                                                             "old run"}));
  CHECK_THAT(script, ContainsSubstring(R"(
#SBATCH --job-name=tiny
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=6
#SBATCH --time=1-12:00:00
#SBATCH --signal=TERM@360
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output="out \"1\".txt"
#SBATCH --partition=gpu
#SBATCH --account=phys
#SBATCH --qos=high
#SBATCH --dependency=afterok:7
#SBATCH --mail-user=me@lab.example
#SBATCH --mail-type=END,FAIL,REQUEUE
#SBATCH --constraint="a100&ib"
#SBATCH --mem=0
)"));
  CHECK_THAT(script, ContainsSubstring("launch=(srun --cpus-per-task=6 /"));
  CHECK_THAT(script, ContainsSubstring(" --checkpoint 'old run' --accept-changed-data --set \"run.name=$name\"\n"));
  CHECK_THAT(script, ContainsSubstring("\" resume \"$name\" --accept-changed-data\n"));
  check_shell(place, script);
}

TEST_CASE("jobs in containers of Pyxis and Apptainer mount what the recipe needs") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string here = place.path().string();
  const std::string pyxis = printed(place, with(two_nodes, {"--container", "nvcr.example#a/b:1", "--mount", "/scratch",
                                                            "--mount", "/big:/data", "--cpus-per-task", "4"}));
  const std::string mounts = "'--container-mounts=" + here + ":" + here + ",/scratch:/scratch,/big:/data'";
  const std::string options = "--cpus-per-task=4 '--container-image=nvcr.example#a/b:1' " + mounts +
                              " --container-workdir=" + here + " runner)\n";
  CHECK_THAT(pyxis, ContainsSubstring("\nlook=(srun --nodes=1 --ntasks=1 " + options + "launch=(srun " + options));
  check_shell(place, pyxis);

  const std::string gpus = printed(place, with(two_nodes, {"--container", "/images/r.sif"}));
  const std::string inside = "--bind " + here + " --pwd " + here + " /images/r.sif runner)\n";
  CHECK_THAT(gpus,
             ContainsSubstring("\nlook=(apptainer exec --nv " + inside + "launch=(srun apptainer exec --nv " + inside));
  const std::string cpus = printed(place, {"--container", "docker://a/b", "--container-runtime", "apptainer",
                                           "--program", "/opt/bin/runner", "--mount", "/scratch"});
  CHECK_THAT(cpus, ContainsSubstring("\nlaunch=(srun --cpus-per-task=1 apptainer exec --bind '" + here +
                                     ",/scratch' --pwd " + here + " docker://a/b /opt/bin/runner)\n"));
  check_shell(place, cpus);

  // What the recipe names elsewhere is mounted, too: the recipe that it extends, data, a tokenizer, and the sweep's recipe.
  const TemporaryFolder other, third;
  const std::string base = (other.path / "base.toml").string();
  std::ofstream(base) << slurp(place.path() / "tiny.toml");
  std::ofstream(other.path / "text.txt") << slurp(place.path() / "text.txt");
  std::ofstream(third.path / "more.txt") << slurp(place.path() / "text.txt");
  place.write("tiny.toml", "extends = \"" + base + "\"\n");
  std::set<std::string> folders = {here, other.path.string(), third.path.string()};
  const std::string extended = printed(place, {"--container", "r.sif", "--unset", "data.validation_fraction", "--set",
                                               "data.validation=[\"" + third.path.string() + "/more.txt\"]"});
  std::string list;
  for (const auto& folder : folders) list += (list.empty() ? "" : ",") + folder;
  CHECK_THAT(extended, ContainsSubstring(" --bind '" + list + "' --pwd "));
  const TemporaryFolder old, apart;
  fs::create_directories(old.path / "checkpoint");
  std::ofstream(old.path / "checkpoint" / "manifest.json") << "{}";
  const std::string started =
      printed(place, {"--container", "r.sif", "--checkpoint", (old.path / "checkpoint").string()});
  CHECK_THAT(started, ContainsSubstring(old.path.string()));
  CHECK_THAT(extended, !ContainsSubstring(old.path.string()));
  fs::create_directories(place.path() / "a:b");
  fs::copy(place.path() / "tiny.toml", place.path() / "a:b");
  const auto below = place.run({"submit", "a:b/tiny.toml", "--print", "--container", "r.sif"});
  CHECK(below.code == 0);  // the working directory contains it
  fs::create_directories(old.path / "a:b");
  CHECK_THAT(
      refused(place, {"--container", "r.sif", "--checkpoint", (old.path / "a:b/").string()}),
      ContainsSubstring("a:b cannot be mounted in a container: a colon separates a folder from its path inside"));
  // The recipe of a sweep, in a folder of which the job needs nothing else.
  std::ofstream(apart.path / "alone.toml") << "extends = \"" << base << "\"\n";
  place.write("sweep.toml", "[sweep]\nrecipe = \"" + (apart.path / "alone.toml").string() +
                                "\"\nmetric = \"loss\"\nmethod = \"random\"\nbudget = { trials = 2 }\n[sweep.space]\n"
                                "\"optimizer.lr\" = { uniform = [0.1, 0.2] }\n");
  CHECK_THAT(place.run({"submit", "sweep.toml", "--print", "--container", "r.sif"}).out,
             ContainsSubstring(apart.path.string()));
  place.write("sweep.toml", "[sweep]\nrecipe = \"" + base +
                                "\"\nmetric = \"loss\"\nmethod = \"random\"\nbudget = { trials = 2 }\n[sweep.space]\n"
                                "\"optimizer.lr\" = { uniform = [0.1, 0.2] }\n");
  const auto sweep = place.run({"submit", "sweep.toml", "--print", "--container", "r.sif"});
  INFO(sweep.err);
  folders.erase(third.path.string());
  list = *folders.begin() + "," + *folders.rbegin();
  CHECK_THAT(sweep.out, ContainsSubstring(" --bind '" + list + "' --pwd "));
}

TEST_CASE("what a job of Slurm cannot do is refused before it is in the queue") {
  Workplace place;
  write_tiny_recipe(place);
  const auto set = [](const std::string& text) { return std::vector<std::string>{"--set", text}; };
  CHECK_THAT(refused(place, set("devices.accelerator=auto")),
             ContainsSubstring(
                 "accelerator = \"auto\" is decided by the node on which the job runs, and Slurm must know before "
                 "whether the job needs GPUs: set devices.accelerator to \"cuda\" or \"cpu\""));
  const std::vector<std::pair<std::string, std::string>> devices = {
      {"auto",
       "devices = \"auto\" means all devices of a node, and Slurm must know their number before the job runs; give it: "
       "devices.devices = 8"},
      {"-1", "devices = -1 means all devices of a node, and Slurm must know"},
      {"free:2", "Slurm gives a job devices that nobody uses: write devices = 2 instead of \"free:2\""},
      {"[1,3]", "Slurm chooses which devices a job gets: give their number, devices = 2, instead of indices"}};
  for (const auto& [value, text] : devices)
    CHECK_THAT(refused(place, {"--set", "devices.accelerator=cuda", "devices.devices=" + value}),
               ContainsSubstring(text));
  CHECK_THAT(
      refused(place, set("devices.simulate=true")),
      ContainsSubstring("devices.simulate tries a recipe on one machine, with one command that starts all ranks"));
  CHECK_THAT(
      refused(place, set("devices.cluster=torchrun")),
      ContainsSubstring("--set devices.cluster=torchrun: error: devices.cluster = \"torchrun\", and the job starts its "
                        "ranks by srun: write \"slurm\" or \"auto\""));
  place.write("rack.lua", "return { ranks = function() return { node_rank = 0, num_nodes = 1 } end }");
  CHECK_THAT(
      refused(place, set("plugins.cluster_environment=rack.lua")),
      ContainsSubstring("--set plugins.cluster_environment=rack.lua: error: the job starts its ranks by srun, and "
                        "Slurm's variables say which ranks they are: remove the plug-in"));
  CHECK_THAT(refused(place, set("strategy.name=dp")),
             ContainsSubstring("strategy `dp` has one process for all devices of a node, and Slurm starts one for each "
                               "device: use ddp"));
  CHECK_THAT(
      refused(place, set("train.grace_time=20h")),
      ContainsSubstring("Slurm can tell a job at most 18h12m15s before its end to stop, and grace_time and the 60 s to "
                        "requeue the job are 20h1m"));
  CHECK_THAT(refused(place, set("train.global_batch_size=13")),
             ContainsSubstring("global_batch_size = 13 cannot be divided among 2 data-parallel ranks"));
  CHECK_THAT(refused(place, set("train.max_step=13")), ContainsSubstring("did you mean `max_steps`?"));
  CHECK(
      refused(place, {"--time", "00:01:30"}) ==
      "error: --time 00:01:30: Slurm tells the run to stop 1m30s before the limit (train.grace_time = 30s, and 60 s to "
      "requeue the job), so the limit must be longer than that\n");
  CHECK(refused(place, {"--time", "soon"}) ==
        "error: --time soon: it takes a time as sbatch does, such as 90 (minutes), 12:00:00 or 2-00:00:00, or as "
        "recipes do, "
        "such as 1d12h\n");
  CHECK(refused(place, {"--set", "devices.threads_per_rank=4", "--cpus-per-task", "2"}) ==
        "error: --cpus-per-task 2: a task of 1 rank needs 4 (devices.threads_per_rank = 4)\n");
  CHECK(refused(place, {"--sbatch", "-N3"}) ==
        "error: --sbatch -N3: the job has --nodes=1 already, from devices.num_nodes\n");
  CHECK(refused(place, with(two_nodes, {"--sbatch=--gres=gpu:4"})) ==
        "error: --sbatch --gres=gpu:4: the job has --gpus-per-node=8 already, from devices.devices\n");
  CHECK(refused(place, {"--sbatch", "--no-requeue"}) ==
        "error: --sbatch --no-requeue: the job has --requeue already, from `runner submit`\n");
  CHECK(refused(place, {"--partition", "a", "--sbatch", "-pb"}) ==
        "error: --sbatch -pb: the job has --partition=a already, from --partition\n");
  CHECK_THAT(refused(place, {"--sbatch", "--chdir=/tmp"}), ContainsSubstring("start `runner submit` there"));
  CHECK(refused(place, {"--sbatch", "constraint"}) ==
        "error: --sbatch constraint: it takes one option of sbatch, such as --sbatch=--constraint=a100\n");
  CHECK(refused(place, {"--account", "a\nb"}) ==
        "error: --account: a value with a line break cannot stand in a line `#SBATCH --account`\n");
  CHECK(refused(place, {"--sbatch", "-t1:00:00"}) ==
        "error: --sbatch -t1:00:00: give it as --time, an option of `runner submit`, which must know its value\n");
  CHECK_THAT(refused(place, {"--sbatch", "-c8"}), ContainsSubstring("-c8: give it as --cpus-per-task, an option"));
  CHECK(refused(place, {"--sbatch", "--array=0-3"}) ==
        "error: --sbatch --array=0-3: an array trains the trials of a sweep, and tiny.toml is a recipe\n");
  CHECK(refused(place, with(two_nodes, {"--sbatch", "-G4"})) ==
        "error: --sbatch -G4: the job has --gpus-per-node=8 already, from devices.devices\n");
  CHECK(refused(place, {"--output", ""}) == "error: --output: its value is empty\n");
  CHECK(refused(place, {"--qos", ""}) == "error: --qos: its value is empty\n");
  CHECK(refused(place, {"--container", "a", "--mount", "/a,b"}) ==
        "error: /a,b cannot be mounted in a container: commas and colons separate mounts\n");
  CHECK(refused(place, {"--mount", "/a"}) == "error: --mount is for jobs in a container, and --container is missing\n");
  CHECK(refused(place, {"--array", "2"}) == "error: --array is for sweeps, and tiny.toml is a recipe\n");
  CHECK(refused(place, {"--parallel", "2"}) == "error: --parallel is for sweeps, and tiny.toml is a recipe\n");
}

TEST_CASE("a checkpoint that is not there is refused as by `runner run`, unless the job may find it later") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string none = (place.path() / "none").string();
  const std::vector<std::string> asked = {"--set", "devices.accelerator=cpu", "--checkpoint", none};
  const std::string message = refused(place, asked);
  CHECK_THAT(message, ContainsSubstring(none + ": there is no such checkpoint"));
  CHECK(place.run(with({"run", "tiny.toml"}, asked)).err == message);
  fs::create_directories(none);
  CHECK_THAT(refused(place, asked), ContainsSubstring("this is not a checkpoint folder, it has no manifest.json"));
  CHECK_THAT(refused(place, with(asked, {"--dependency", "afterok:7"})), ContainsSubstring("not a checkpoint folder"));
  fs::remove(none);
  const auto later = place.run(with({"submit", "tiny.toml", "--print"}, with(asked, {"--dependency", "afterok:7"})));
  CHECK(later.code == 0);
  CHECK_THAT(later.err, ContainsSubstring("note: --checkpoint " + none + ": it does not exist yet"));
}

TEST_CASE("which sweeps can be arrays") {
  Workplace place;
  write_shared_sweep(place);
  const auto script = place.run({"submit", "sweep.toml", "--print", "--array", "2"});
  INFO(script.err);
  REQUIRE(script.code == 0);
  CHECK_THAT(script.out, ContainsSubstring("#SBATCH --array=0-3%2\n") &&
                             ContainsSubstring("#SBATCH --ntasks-per-node=1\n") &&
                             ContainsSubstring("#SBATCH --output=%x-%A_%a.out\n") &&
                             ContainsSubstring("\nname=slurm-${SLURM_ARRAY_JOB_ID}-sweep-") &&
                             ContainsSubstring("sweep trial sweep.toml \"$SLURM_ARRAY_TASK_ID\" --name \"$name\"\n"));
  check_shell(place, script.out);
  const auto one = place.run({"submit", "sweep.toml", "--print", "--parallel", "3", "--cpus-per-task", "3"});
  CHECK_THAT(one.out,
             ContainsSubstring("  \"${launch[@]}\" sweep resume \"$name\" --parallel 3\n") &&
                 ContainsSubstring("  \"${launch[@]}\" sweep run sweep.toml --name \"$name\" --parallel 3\n") &&
                 ContainsSubstring("problem=$(\"${look[@]}\" sweep status \"$name\" --json") &&
                 !ContainsSubstring("#SBATCH --time"));
  check_shell(place, one.out);
  CHECK_THAT(refused(place, {"--parallel", "2000000000"}, "sweep.toml"),
             ContainsSubstring("are more than the 65533 that Slurm can count on a node: lower --parallel"));
  CHECK_THAT(refused(place, {"--array", "2", "--sbatch", "--array=1"}, "sweep.toml"),
             ContainsSubstring("--array=1: give it as --array, an option of `runner submit`"));
  // train.max_time is that of a trial, budget.time that of all of them. The end takes 90 s, the start 10 minutes.
  write_shared_sweep(place, "budget = { time = \"2h\", trials = 4 }\n");
  CHECK_THAT(place.run({"submit", "sweep.toml", "--print"}).out, ContainsSubstring("#SBATCH --time=02:12:00\n"));
  CHECK_THAT(place.run({"submit", "sweep.toml", "--print", "--time", "1h"}).err,
             ContainsSubstring("note: budget.time = 2h is longer than the job's time limit allows"));
  write_shared_sweep(place);
  std::string limited = slurp(place.path() / "sweep.toml");
  limited.replace(limited.find("set = { "), 8, "set = { \"train.max_time\" = \"1h\", ");
  place.write("limited.toml", limited);
  CHECK_THAT(place.run({"submit", "limited.toml", "--print"}).out, !ContainsSubstring("#SBATCH --time"));
  CHECK_THAT(place.run({"submit", "limited.toml", "--print", "--array", "2"}).out,
             ContainsSubstring("#SBATCH --time=01:12:00\n"));

  const auto why = [&](const std::string& keys) {
    write_shared_sweep(place, keys);
    return refused(place, {"--array", "2"}, "sweep.toml");
  };
  CHECK_THAT(
      why("budget = { time = \"1h\", trials = 3 }\n"),
      ContainsSubstring("the trials of sweep.toml cannot be shared between processes: budget.time ends it before all "
                        "trials have begun"));
  CHECK_THAT(why("budget = { trials = 3 }\nstop = { target = 1.0 }\n"),
             ContainsSubstring("[sweep] `stop` ends it by the results of trials"));
  write_shared_sweep(place);
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string text = slurp(place.path() / "sweep.toml");
    place.write("other.toml", text.replace(text.find(from), from.size(), to));
    return refused(place, {"--array", "2"}, "other.toml");
  };
  CHECK_THAT(edited("\"random\"", "{ name = \"tpe\", n_startup_trials = 3 }"),
             ContainsSubstring("the method tpe chooses 1 trial by the results of others"));
  CHECK_THAT(edited("\"random\"", "{ name = \"asha\", min_steps = 1 }"),
             ContainsSubstring("the method asha compares trials while they run"));
  CHECK_THAT(edited("\"devices.cpu_processes\" = 1", "\"devices.num_nodes\" = 2"),
             ContainsSubstring("each trial of a sweep runs on one node, but the recipe has devices.num_nodes = 2"));
  CHECK_THAT(refused(place, {"--array", "2", "--parallel", "2"}, "sweep.toml"),
             ContainsSubstring("--parallel and --array: a job of an array trains one trial"));
  CHECK_THAT(refused(place, {"--set", "run.seed=1"}, "sweep.toml"),
             ContainsSubstring("--set is for recipes, but sweep.toml is a sweep file: use its section [sweep.set]"));
  CHECK_THAT(refused(place, {"--checkpoint", "x"}, "sweep.toml"), ContainsSubstring("--checkpoint is for recipes"));
  CHECK_THAT(
      edited("\"optimizer.lr\" = { log_uniform = [1e-5, 1e-1] }", "\"devices.threads_per_rank\" = [1, 2]"),
      ContainsSubstring("other.toml: the sweep varies devices.threads_per_rank, so what its trials need is not known "
                        "before they begin"));
  place.write("sweep.lua",
              "return { recipe = \"tiny.toml\", metric = \"loss\", set = { [\"devices.cpu_processes\"] = 1 }, "
              "budget = {trials = 2},\n  run = function(sweep) sweep:try{[\"optimizer.lr\"] = 0.1} end }\n");
  CHECK_THAT(refused(place, {"--array", "2"}, "sweep.lua"),
             ContainsSubstring("its `run` decides after each result which trial is next"));
}

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
  const auto script = place.run({"submit", hostile + "/" + hostile + ".toml", "--print", "--program",
                                 (place.path() / "program").string(), "--set", note, "devices.cpu_processes=1"},
                                {{"RUNNER_HOME", (folder / "home").string()}});
  INFO(script.err);
  REQUIRE(script.code == 0);
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
    const auto again = place.run(words, {{"SLURM_RESTART_COUNT", "1"}});
    INFO(again.err);
    CHECK(again.code == 0);
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
        "the "
        "script\n");
  CHECK_FALSE(fs::exists(place.home() / "submitted"));

  const FakeSlurm slurm(place);
  result = place.run({"submit", "tiny.toml", "--json", "--set", "devices.cpu_processes=1"}, slurm.variables());
  INFO(result.err);
  REQUIRE(result.code == 0);
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
  write_tiny_recipe(place, "[logging]\nnotify = { on = \"end\", command = \"cat >>told.json\" }\n");
  write_sweep_file(place);
  const FakeSlurm slurm(place);
  auto variables = slurm.variables();
  variables["PAUSE"] = "0.1";
  auto result = place.run({"submit", "sweep.toml", "--array", "2", "--json"}, variables);
  INFO(result.err);
  REQUIRE(result.code == 0);
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
      const auto stopped = place.run({"sweep", "stop", name});
      INFO(stopped.err);
      CHECK(stopped.code == 0);
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
  result = place.run({"sweep", "run", "two.toml", "--name", "given", "--json"}, step);
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.json().at("sweep").at("name") == "given");
}
