// The real launchers, if this machine has them (scripts/setup --tests). Two ranks print the placement that they detect.
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/text.hpp"

using namespace runner;
using nlohmann::json;

namespace {

struct Ran {
  int code = -1;
  std::string output;
};

/// Removes variables of a launcher that runs this test, so they cannot be detected as the tested launcher.
Ran run(const std::string& command) {
  std::string line =
      "env -u TORCHELASTIC_RUN_ID -u MASTER_ADDR -u MASTER_PORT timeout 60 " + command + " 2>&1 </dev/null";
  FILE* pipe = ::popen(line.c_str(), "r");
  Ran ran;
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) ran.output.append(buffer, n);
  int status = ::pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

bool works(const std::string& command) { return run("sh -c '" + command + " >/dev/null'").code == 0; }

/// Checks the placements of the two ranks.
void check_two_ranks(const std::string& cluster, const std::string& launch) {
  Ran ran = run(launch + " " PLACEMENT_MAIN " 2");
  INFO(launch << " printed:\n" << ran.output);
  CHECK(ran.code == 0);
  std::vector<json> placements;
  for (const std::string& line : split(ran.output, '\n'))
    if (size_t at = line.find("placement {"); at != std::string::npos)
      placements.push_back(json::parse(line.substr(at + 10)));
  REQUIRE(placements.size() == 2);
  std::sort(placements.begin(), placements.end(), [](const json& a, const json& b) { return a["rank"] < b["rank"]; });
  for (int rank = 0; rank < 2; ++rank) {
    json& p = placements[static_cast<size_t>(rank)];
    CHECK(p["cluster"] == cluster);
    CHECK(p["launched"] == true);
    CHECK(p["rank"] == rank);
    CHECK(p["local_rank"] == rank);
    CHECK(p["world_size"] == 2);
    CHECK(p["local_size"] == 2);
    CHECK(p["num_nodes"] == 1);
    CHECK(p["node_rank"] == 0);
  }
  CHECK(placements[0]["master_addr"] == placements[1]["master_addr"]);
  CHECK(placements[0]["master_port"] == placements[1]["master_port"]);
}

}  // namespace

TEST_CASE("two ranks under Open MPI's mpirun") {
  const std::string mpirun = "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2";
  if (!works(mpirun + " true")) SKIP("mpirun.openmpi is not installed or does not start (Debian: openmpi-bin)");
  check_two_ranks("openmpi", mpirun);
}

TEST_CASE("two ranks under MPICH's mpirun, also through a wrapper shell") {
  if (!works("mpirun.mpich -n 2 sleep 0.3")) SKIP("mpirun.mpich is not installed or does not start (Debian: mpich)");
  check_two_ranks("mpich", "mpirun.mpich -n 2");
  check_two_ranks("mpich", "mpirun.mpich -n 2 sh -c '\"$0\" \"$@\"; exit $?'");
}

TEST_CASE("two ranks under srun") {
  const std::string srun = RUNNER_SOURCE_DIR "/tests/support/one_node_slurm srun -n2 --overcommit";
  if (Ran probe = run(srun + " true"); probe.code != 0) SKIP("a Slurm of one node does not start: " << probe.output);
  check_two_ranks("slurm", srun);
}

TEST_CASE("two ranks under torchrun") {
  if (!works("torchrun --help")) SKIP("torchrun is not installed");
  // Without redirection torchrun 1.13 fails on Python 3.11, because its enum of flags does not list 0 and 3 there.
  check_two_ranks("torchrun", "torchrun --standalone --redirects 1 --tee 1 --nproc_per_node 2 --no_python");
}
