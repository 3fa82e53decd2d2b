// One `runner run` per rank, as launchers start them: with the variables of each launcher, and with the real launchers
// of this machine (scripts/setup --tests installs them).
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/nodes.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

using Map = std::map<std::string, std::string>;

/// The variables of rank `rank` of 2 on one node. `job` differs between concurrent tests.
struct Launcher {
  const char* name;
  std::function<Map(const std::string& rank, const std::string& job)> variables;
};

const std::vector<Launcher> launchers = {
    {"torchrun",
     [](const std::string& rank, const std::string& job) {
       return Map{{"TORCHELASTIC_RUN_ID", job},
                  {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                  {"RANK", rank},
                  {"WORLD_SIZE", "2"},
                  {"LOCAL_RANK", rank},
                  {"LOCAL_WORLD_SIZE", "2"},
                  {"GROUP_RANK", "0"},
                  {"GROUP_WORLD_SIZE", "1"},
                  {"MASTER_ADDR", "localhost"},
                  {"MASTER_PORT", "29500"}};
     }},
    {"slurm",
     [](const std::string& rank, const std::string& job) {
       return Map{{"SLURM_JOB_ID", job},
                  {"SLURM_STEP_ID", "0"},
                  {"SLURM_PROCID", rank},
                  {"SLURM_LOCALID", rank},
                  {"SLURM_NODEID", "0"},
                  {"SLURM_STEP_NUM_TASKS", "2"},
                  {"SLURM_STEP_NUM_NODES", "1"},
                  {"SLURM_STEP_TASKS_PER_NODE", "2"},
                  {"SLURM_STEP_NODELIST", "gpu07"},
                  {"SLURM_JOB_NAME", "train"}};
     }},
    {"openmpi",
     [](const std::string& rank, const std::string& job) {
       return Map{{"OMPI_COMM_WORLD_RANK", rank},
                  {"OMPI_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                  {"PMIX_NAMESPACE", job}};
     }},
    {"mpich",
     [](const std::string& rank, const std::string&) {
       return Map{{"PMI_RANK", rank}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", rank}, {"MPI_LOCALNRANKS", "2"}};
     }},
};

std::string this_job() { return std::to_string(::getpid()); }

/// The losses of two ranks with one supervisor.
std::vector<double> expected_losses() {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  auto result = place.run({"run", "tiny.toml"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  return losses(place);
}

void check_run(const Workplace& place, const std::vector<double>& expected) {
  auto runs = place.run({"ls", "--json"}).json().at("runs");
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].at("status") == "finished");
  auto curve = losses(place);
  REQUIRE(curve.size() == expected.size());
  for (size_t i = 0; i < curve.size(); ++i) CHECK_THAT(curve[i], WithinRel(expected[i], 1e-5));
}

bool works(const std::string& command) {
  return ::system(("timeout 60 " + command + " >/dev/null 2>&1 </dev/null").c_str()) == 0;
}

/// A prefix that runs a command in a Slurm cluster of one node.
const std::string one_node_slurm = RUNNER_SOURCE_DIR "/tests/support/one_node_slurm ";

/// Runs two ranks with a real launcher.
void check_launcher(const std::string& launch) {
  auto expected = expected_losses();
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  std::string line =
      "cd " + place.path().string() +
      " && env -u TORCHELASTIC_RUN_ID -u MASTER_ADDR -u MASTER_PORT RUNNER_HOME=" + place.home().string() +
      " timeout 120 " + launch + " " RUNNER_BINARY_DIR "/bin/runner run tiny.toml --json >out 2>err </dev/null";
  int status = ::system(line.c_str());
  INFO(line << "\n" << slurp(place.path() / "err") << slurp(place.path() / "out"));
  REQUIRE(status == 0);
  check_run(place, expected);
  std::string out = slurp(place.path() / "out");
  size_t first = out.find("{\"failure\":");
  CHECK(first != std::string::npos);
  CHECK(out.find("{\"failure\":", first + 1) == std::string::npos);  // only rank 0's supervisor prints it
}

}  // namespace

TEST_CASE("with each launcher's variables, two supervisors form one run", "[e2e]") {
  auto expected = expected_losses();
  for (const auto& launcher : launchers) {
    INFO(launcher.name);
    Workplace place;
    write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
    std::vector<pid_t> pids;
    for (std::string rank : {"0", "1"})
      pids.push_back(place.start({"run", "tiny.toml", "--json"}, "rank-" + rank, launcher.variables(rank, this_job())));
    auto zero = place.finish(pids[0], "rank-0"), one = place.finish(pids[1], "rank-1");
    INFO(zero.err << one.err);
    REQUIRE(zero.code == 0);
    CHECK(one.code == 0);
    CHECK(one.out.empty());
    CHECK(one.err.empty());
    CHECK_THAT(
        zero.err,
        ContainsSubstring(
            std::string("note: ") + launcher.name +
            " started one supervisor for each rank of this node, so the ranks communicate over Gloo; a single `runner "
            "run` that starts all ranks lets them use shared memory"));
    check_run(place, expected);
  }
}

TEST_CASE("a run under a launcher stops at SIGTERM, and resumes under another with more ranks", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  std::vector<pid_t> pids;
  for (std::string rank : {"0", "1"})
    pids.push_back(place.start({"run", "tiny.toml", "--json", "--set", "train.max_steps=1000000"}, "rank-" + rank,
                               launchers[1].variables(rank, this_job())));
  REQUIRE(wait_until([&] { return slurp(place.path() / "rank-0.err").find("loss") != std::string::npos; }, 60));
  for (pid_t pid : pids) ::kill(pid, SIGTERM);
  auto zero = place.finish(pids[0], "rank-0"), one = place.finish(pids[1], "rank-1");
  INFO(zero.err << one.err);
  CHECK(zero.code == 3);
  CHECK(one.code == 3);
  int64_t steps = zero.json().at("steps");
  std::string more = "train.max_steps=" + std::to_string(steps + 3);
  pids.clear();
  for (std::string rank : {"0", "1", "2"}) {
    auto variables = launchers[2].variables(rank, this_job());
    variables["OMPI_COMM_WORLD_SIZE"] = variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "3";
    pids.push_back(place.start({"resume", "--json", "--set", more}, "rank-" + rank, variables));
  }
  for (size_t rank = 3; rank-- > 0;) {
    auto result = place.finish(pids[rank], "rank-" + std::to_string(rank));
    INFO(result.err);
    REQUIRE(result.code == 0);
    if (rank == 0) CHECK(result.json().at("steps") == steps + 3);
  }
}

TEST_CASE("a launcher that started another number of ranks than in the recipe is refused", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto result =
      place.run({"run", "tiny.toml", "--set", "devices.cpu_processes=4"}, launchers[1].variables("0", this_job()));
  CHECK(result.code == 2);
  CHECK(result.err ==
        "error: the recipe uses 4 devices per node, but Slurm started 2 ranks on this node: set devices.devices = 2 "
        "(devices.cpu_processes on CPU), or start 4 ranks per node (srun --ntasks-per-node=4)\n");
}

TEST_CASE("shared memory in the strategy's options is refused under a launcher, before a run is created", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"ddp\"\nprocess_group_backend = \"shm\"\n");
  std::vector<pid_t> pids;
  for (std::string rank : {"0", "1"})
    pids.push_back(place.start({"run", "tiny.toml"}, "rank-" + rank, launchers[0].variables(rank, this_job())));
  auto zero = place.finish(pids[0], "rank-0"), one = place.finish(pids[1], "rank-1");
  CHECK(zero.code == 2);
  CHECK(one.code == 2);
  CHECK_THAT(zero.err, ContainsSubstring(
                           ": error: process_group_backend \"shm\" connects the ranks of one supervisor, and this run "
                           "has one for each rank, which its launcher starts\n"));
  CHECK_THAT(zero.err,
             ContainsSubstring("| process_group_backend = \"shm\"\n") && ContainsSubstring("allowed: gloo\n"));
  CHECK_FALSE(fs::exists(place.home() / "ledger.db"));
}

TEST_CASE("explicit device indices under a launcher give a warning", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write(
      "facts.json",
      R"({"cuda_module": true, "cores": 4, "cuda": [{"index": 0, "name": "A", "memory_bytes": 80000000000, "major": 9},
                                {"index": 1, "name": "A", "memory_bytes": 80000000000, "major": 9}]})");
  auto variables = launchers[1].variables("0", this_job());
  variables["RUNNER_FAKE_FACTS"] = (place.path() / "facts.json").string();
  auto result = place.run({"run", "tiny.toml", "--set", "devices.accelerator=cuda", "--set", "devices.devices=[1, 0]",
                           "--set", "devices.rendezvous_timeout=1s"},
                          variables);
  CHECK(result.code == 4);  // rank 1 is missing
  CHECK_THAT(result.err,
             ContainsSubstring("devices = [1, 0] under Slurm: the launcher already assigns devices to each rank"));
}

TEST_CASE("a run under torchrun", "[e2e]") {
  if (!works("torchrun --help")) SKIP("torchrun is not installed");
  // Without redirection torchrun 1.13 fails on Python 3.11, because its enum of flags does not list 0 and 3 there.
  check_launcher("torchrun --standalone --redirects 1 --tee 1 --nproc_per_node 2 --no_python");
  check_launcher("torchrun --redirects 1 --tee 1 --nproc_per_node 2 --master_port " + std::to_string(free_port()) +
                 " --no_python");
}

TEST_CASE("a run under Open MPI's mpirun", "[e2e]") {
  const std::string mpirun = "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2";
  if (!works(mpirun + " true")) SKIP("mpirun.openmpi is not installed or does not start (Debian: openmpi-bin)");
  check_launcher(mpirun);
}

TEST_CASE("a run under MPICH's mpirun", "[e2e]") {
  if (!works("mpirun.mpich -n 2 sleep 0.3")) SKIP("mpirun.mpich is not installed or does not start (Debian: mpich)");
  check_launcher("mpirun.mpich -n 2");
}

TEST_CASE("a run under srun", "[e2e]") {
  if (!works(one_node_slurm + "true")) SKIP("a Slurm of one node does not start (" << one_node_slurm << "true)");
  check_launcher(one_node_slurm + "srun -n2 --overcommit");
}
