// `runner submit`: the scripts that it writes, and what it refuses.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "tests/commands/submit_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

std::string printed(const Workplace& place, std::vector<std::string> words) {
  words.insert(words.begin(), {"submit", "tiny.toml", "--print"});
  auto result = succeed(place, words);
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
  auto words = runner::split(
      "--partition gpu --account phys --qos high --time 1d12h --cpus-per-task 6 --mail-user me@lab.example "
      "--dependency afterok:7 --sbatch=--constraint=\"a100&ib\" --sbatch --mem=0 --set train.grace_time=5m "
      "--accept-changed-data",
      ' ');
  words = with(words, {"--output", "out \"1\".txt", "--checkpoint", "old run"});
  const std::string script = printed(place, with(two_nodes, words));
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
  const auto sweep_of = [&](const std::string& recipe) {
    place.write("sweep.toml", "[sweep]\nrecipe = \"" + recipe +
                                  "\"\nmetric = \"loss\"\nmethod = \"random\"\nbudget = { trials = 2 }\n[sweep.space]\n"
                                  "\"optimizer.lr\" = { uniform = [0.1, 0.2] }\n");
    return place.run({"submit", "sweep.toml", "--print", "--container", "r.sif"});
  };
  // The recipe of a sweep, in a folder of which the job needs nothing else.
  std::ofstream(apart.path / "alone.toml") << "extends = \"" << base << "\"\n";
  CHECK_THAT(sweep_of((apart.path / "alone.toml").string()).out, ContainsSubstring(apart.path.string()));
  const auto sweep = sweep_of(base);
  INFO(sweep.err);
  folders.erase(third.path.string());
  list = *folders.begin() + "," + *folders.rbegin();
  CHECK_THAT(sweep.out, ContainsSubstring(" --bind '" + list + "' --pwd "));
}

TEST_CASE("what a job of Slurm cannot do is refused before it is in the queue") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("rack.lua", "return { ranks = function() return { node_rank = 0, num_nodes = 1 } end }");
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"devices.accelerator=auto",
       "accelerator = \"auto\" is decided by the node on which the job runs, and Slurm must know before whether the "
       "job needs GPUs: add --set devices.accelerator=cuda devices.devices=8 (the number of GPUs of a node) or --set "
       "devices.accelerator=cpu (in a sweep: the keys in [sweep.set])"},
      {"devices.simulate=true",
       "devices.simulate tries a recipe on one machine, with one command that starts all ranks"},
      {"devices.cluster=torchrun",
       "--set devices.cluster=torchrun: error: devices.cluster = \"torchrun\", and the job starts its ranks by srun: "
       "write \"slurm\" or \"auto\""},
      {"plugins.cluster_environment=rack.lua",
       "--set plugins.cluster_environment=rack.lua: error: the job starts its ranks by srun, and Slurm's variables say "
       "which ranks they are: remove the plug-in"},
      {"strategy.name=dp",
       "strategy `dp` has one process for all devices of a node, and Slurm starts one for each device: use ddp"},
      {"train.grace_time=20h",
       "Slurm can tell a job at most 18h12m15s before its end to stop, and grace_time and the 60 s to requeue the job "
       "are 20h1m"},
      {"train.global_batch_size=13", "global_batch_size = 13 cannot be divided among 2 data-parallel ranks"},
      {"train.max_step=13", "did you mean `max_steps`?"}};
  for (const auto& [setting, text] : settings) CHECK_THAT(refused(place, {"--set", setting}), ContainsSubstring(text));
  const std::vector<std::pair<std::string, std::string>> devices = {
      {"auto",
       "devices = \"auto\" means all devices of a node, and Slurm must know their number before the job runs; give it: "
       "--set devices.devices=8"},
      {"-1", "devices = -1 means all devices of a node, and Slurm must know"},
      {"free:2", "Slurm gives a job devices that nobody uses: write devices = 2 instead of \"free:2\""},
      {"[1,3]", "Slurm chooses which devices a job gets: give their number, devices = 2, instead of indices"}};
  for (const auto& [value, text] : devices)
    CHECK_THAT(refused(place, {"--set", "devices.accelerator=cuda", "devices.devices=" + value}),
               ContainsSubstring(text));
  CHECK_THAT(refused(place, {"--sbatch", "--chdir=/tmp"}), ContainsSubstring("start `runner submit` there"));
  CHECK_THAT(refused(place, {"--sbatch", "-c8"}), ContainsSubstring("-c8: give it as --cpus-per-task, an option"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> options = {
      {{"--time", "00:01:30"},
       "--time 00:01:30: Slurm tells the run to stop 1m30s before the limit (train.grace_time = 30s, and 60 s to "
       "requeue the job), so the limit must be longer than that"},
      {{"--time", "soon"},
       "--time soon: it takes a time as sbatch does, such as 90 (minutes), 12:00:00 or 2-00:00:00, or as recipes do, "
       "such as 1d12h"},
      {{"--set", "devices.threads_per_rank=4", "--cpus-per-task", "2"},
       "--cpus-per-task 2: a task of 1 rank needs 4 (devices.threads_per_rank = 4)"},
      {{"--sbatch", "-N3"}, "--sbatch -N3: the job has --nodes=1 already, from devices.num_nodes"},
      {with(two_nodes, {"--sbatch=--gres=gpu:4"}),
       "--sbatch --gres=gpu:4: the job has --gpus-per-node=8 already, from devices.devices"},
      {with(two_nodes, {"--sbatch", "-G4"}),
       "--sbatch -G4: the job has --gpus-per-node=8 already, from devices.devices"},
      {{"--sbatch", "--no-requeue"}, "--sbatch --no-requeue: the job has --requeue already, from `runner submit`"},
      {{"--partition", "a", "--sbatch", "-pb"}, "--sbatch -pb: the job has --partition=a already, from --partition"},
      {{"--sbatch", "constraint"},
       "--sbatch constraint: it takes one option of sbatch, such as --sbatch=--constraint=a100"},
      {{"--account", "a\nb"}, "--account: a value with a line break cannot stand in a line `#SBATCH --account`"},
      {{"--sbatch", "-t1:00:00"},
       "--sbatch -t1:00:00: give it as --time, an option of `runner submit`, which must know its value"},
      {{"--sbatch", "--array=0-3"},
       "--sbatch --array=0-3: an array trains the trials of a sweep, and tiny.toml is a recipe"},
      {{"--output", ""}, "--output: its value is empty"},
      {{"--qos", ""}, "--qos: its value is empty"},
      {{"--container", "a", "--mount", "/a,b"},
       "/a,b cannot be mounted in a container: commas and colons separate mounts"},
      {{"--mount", "/a"}, "--mount is for jobs in a container, and --container is missing"},
      {{"--array", "2"}, "--array is for sweeps, and tiny.toml is a recipe"},
      {{"--parallel", "2"}, "--parallel is for sweeps, and tiny.toml is a recipe"}};
  for (const auto& [words, text] : options) CHECK(refused(place, words) == "error: " + text + "\n");
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
  const auto script = succeed(place, {"submit", "sweep.toml", "--print", "--array", "2"});
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
