// Jobs of `runner submit` that train: preempted, requeued and resumed, under a Slurm that a script stands for and under a Slurm of one
// node (scripts/setup --tests installs it).
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/sweep_support.hpp"
#include "tests/support/fake_slurm.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using Catch::Matchers::WithinRel;

namespace {

/// A prefix that runs a command in a Slurm cluster of one node.
const std::string one_node_slurm = RUNNER_SOURCE_DIR "/tests/support/one_node_slurm ";

bool slurm_works() {
  return ::system(("timeout 60 " + one_node_slurm + "true >/dev/null 2>&1 </dev/null").c_str()) == 0;
}

const std::string fsdp = "[strategy]\nname = \"fsdp\"\n";

/// Checks that the only run, whose name begins so, has finished, with the losses of a run that nothing has interrupted.
void check_losses(const Workplace& place, const std::string& name, const std::string& max_steps) {
  const auto runs = place.run({"ls", "--json"}).json().at("runs");
  REQUIRE(runs.size() == 1);
  CHECK_THAT(runs[0].at("name").get<std::string>(), StartsWith(name));
  CHECK(runs[0].at("status") == "finished");
  const auto curve = losses(place);
  Workplace quiet;
  write_tiny_recipe(quiet, fsdp);
  const auto result = quiet.run({"run", "tiny.toml", "--set", max_steps});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto expected = losses(quiet);
  REQUIRE(curve.size() == expected.size());
  for (size_t i = 0; i < curve.size(); ++i) CHECK_THAT(curve[i], WithinRel(expected[i], 1e-5));
}

/// Runs a script of bash in the cluster of one node, in the workplace. Returns what it printed.
std::string in_slurm(const Workplace& place, const std::string& script) {
  place.write("in_slurm", "set -u\nrunner=" RUNNER_BINARY_DIR "/bin/runner\n" + script);
  const std::string line = "cd " + place.path().string() + " && RUNNER_HOME=" + place.home().string() +
                           " timeout 280 " + one_node_slurm + "bash in_slurm >out 2>&1 </dev/null";
  const int status = ::system(line.c_str());
  std::string out = slurp(place.path() / "out");
  INFO(out);
  REQUIRE(status == 0);
  return out;
}

}  // namespace

TEST_CASE("a preempted job saves, requeues itself, and ends with the losses of an undisturbed run", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp);
  const FakeSlurm slurm(place);
  const std::string steps = "train.max_steps=150";
  auto result = place.run({"submit", "tiny.toml", "--json", "--set", steps}, slurm.variables());
  INFO(result.err);
  REQUIRE(result.code == 0);
  REQUIRE(wait_until([&] { return slurm.output("41").find("loss") != std::string::npos; }, 60));
  for (pid_t task : slurm.tasks("41")) ::kill(task, SIGTERM);
  CHECK(slurm.code("41") == 0);
  INFO(slurm.output("41"));
  CHECK_THAT(slurm.output("41"),
             ContainsSubstring("job 41: checkpoint saved, requeueing\n") && ContainsSubstring("continuing from "));
  CHECK_THAT(slurm.calls(), ContainsSubstring("scontrol requeue 41\n"));
  check_losses(place, "slurm-41-tiny-", steps);
}

TEST_CASE("a requeued Slurm job resumes its run and finishes it", "[e2e]") {
  if (!slurm_works()) SKIP("a Slurm of one node does not start (" << one_node_slurm << "true)");
  Workplace place;
  write_tiny_recipe(place, fsdp);
  // A preemption sends SIGTERM to the tasks of a job. The job then requeues itself.
  in_slurm(place, R"sh(
"$runner" submit tiny.toml --set train.max_steps=150 --json --time 10 >job.json || exit 1
id=$(sed 's/.*"job":"\([0-9]*\)".*/\1/' job.json)
until grep -q loss "tiny-$id.out" 2>/dev/null; do sleep 0.02; done
scancel --signal=TERM "$id"
until scontrol show job "$id" | grep -E 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT)' >/dev/null; do sleep 0.2; done
scontrol show job "$id" >job
)sh");
  const std::string job = slurp(place.path() / "job");
  INFO(slurp(place.path() / "tiny-1.out") << job);
  CHECK_THAT(job, ContainsSubstring("JobState=COMPLETED") && ContainsSubstring("Restarts=1") &&
                      ContainsSubstring("JobName=tiny") && ContainsSubstring("TimeLimit=00:10:00"));
  check_losses(place, "slurm-1-tiny-", "train.max_steps=150");
}

TEST_CASE("Slurm runs a sweep as an array, whose options contain quotes and spaces", "[e2e][sweep]") {
  if (!slurm_works()) SKIP("a Slurm of one node does not start (" << one_node_slurm << "true)");
  Workplace place;
  place.replace_worker(made_up_worker);
  write_tiny_recipe(place);
  place.write(
      "sweep.toml",
      "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = \"sobol\"\nbudget = { trials = 3 }\nset = { "
      "\"train.max_steps\" = 3 }\n[sweep.space]\n\"optimizer.lr\" = { log_uniform = [1e-5, 1e-1] }\n");
  in_slurm(place, R"sh(
bin/runner submit sweep.toml --array 2 --json --output 'a "b" # %A_%a' --sbatch '--comment="x y"' >job.json || exit 1
id=$(sed 's/.*"job":"\([0-9]*\)".*/\1/' job.json)
while squeue -h -j "$id" | grep -q .; do sleep 0.2; done
scontrol show job "$id" >job
)sh");
  const std::string job = slurp(place.path() / "job");
  INFO(slurp(place.path() / "a \"b\" # 1_0") << job);
  CHECK_THAT(job, ContainsSubstring("Comment=x y") && ContainsSubstring("ArrayTaskThrottle=2"));
  for (const char* file : {"a \"b\" # 1_0", "a \"b\" # 1_1", "a \"b\" # 1_2"}) CHECK(fs::exists(place.path() / file));
  const auto status = status_of(place);
  CHECK_THAT(status.at("sweep").at("name").get<std::string>(), StartsWith("slurm-1-sweep-"));
  CHECK(status.at("sweep").at("status") == "finished");
  CHECK(status.at("sweep").at("counts").at("finished") == 3);
  for (const auto& trial : status.at("trials")) CHECK(trial.at("tries") == 1);
}
