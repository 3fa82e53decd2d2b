// Detection of cluster environments from each launcher's variables, and exact texts of the checks against the recipe.
#include "runner/launch/cluster.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/host_name.hpp"
#include "runner/launch/variables.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using runner::testing::refusal;

namespace {

using Map = std::map<std::string, std::string>;

Environment from(Map map) {
  return [map = std::move(map)](const std::string& name) -> std::optional<std::string> {
    auto found = map.find(name);
    return found == map.end() ? std::nullopt : std::optional(found->second);
  };
}

Map with(Map base, const Map& changes) {
  for (const auto& [name, value] : changes) {
    if (value == "(unset)")
      base.erase(name);
    else
      base[name] = value;
  }
  return base;
}

Placement placed(const Map& map) { return find_placement("auto", from(map)); }

/// Its rank, world_size, local_rank, local_size, node_rank and num_nodes.
std::vector<int> numbers_of(const Placement& p) {
  return {p.rank, p.world_size, p.local_rank, p.local_size, p.node_rank, p.num_nodes};
}

std::string refusal_of(const Map& map, const std::string& wanted = "auto") {
  return refusal([&] { find_placement(wanted, from(map)); });
}

const Map torchrun{
    {"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "5"},       {"WORLD_SIZE", "8"},       {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "4"},       {"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "2"}, {"MASTER_ADDR", "node-a"},
    {"MASTER_PORT", "29511"}};
const Map slurm_step{{"SLURM_JOB_ID", "4242"},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_PROCID", "5"},
                     {"SLURM_LOCALID", "1"},
                     {"SLURM_NODEID", "1"},
                     {"SLURM_NTASKS", "8"},
                     {"SLURM_STEP_NUM_TASKS", "8"},
                     {"SLURM_NNODES", "2"},
                     {"SLURM_STEP_NUM_NODES", "2"},
                     {"SLURM_TASKS_PER_NODE", "4(x2)"},
                     {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                     {"SLURM_JOB_NODELIST", "gpu[07-08]"},
                     {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                     {"SLURM_JOB_NAME", "train"},
                     {"SLURMD_NODENAME", "gpu08"}};
/// A batch script: slurmd sets SLURM_PROCID to 0 but sets no step.
const Map slurm_batch{{"SLURM_JOB_ID", "4242"},
                      {"SLURM_PROCID", "0"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "0"},
                      {"SLURM_NTASKS", "8"},
                      {"SLURM_NNODES", "2"},
                      {"SLURM_TASKS_PER_NODE", "4(x2)"},
                      {"SLURM_JOB_NODELIST", "gpu[07-08]"},
                      {"SLURM_JOB_NAME", "train"},
                      {"SLURMD_NODENAME", "gpu07"}};
const Map openmpi{{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                  {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"PMIX_NAMESPACE", "1085734913"}};
const Map mpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "8"}};

}  // namespace

TEST_CASE("host lists in Slurm's syntax are expanded") {
  using Names = std::vector<std::string>;
  CHECK(expand_hostlist("host[5-9,12],other") == Names{"host5", "host6", "host7", "host8", "host9", "host12", "other"});
  CHECK(expand_hostlist("n[008-011]") == Names{"n008", "n009", "n010", "n011"});
  CHECK(expand_hostlist("r[1-2]n[01-02]-ib") == Names{"r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"});
  CHECK(expand_hostlist("one") == Names{"one"});
  for (const char* bad : {"", "a,,b", "a[", "a[1-", "a[1-2", "a]1[", "a[2-1]", "a[x]", "a[1,]", "a[0-99999999]"}) {
    INFO(bad);
    CHECK(refusal([&] { expand_hostlist(bad); }) ==
          "4: cannot read the host list \"" + std::string(bad) + "\": expected names such as host[5-9,12],other");
  }
}

TEST_CASE("task counts in Slurm's syntax are expanded") {
  CHECK(expand_counts("2(x3),1") == std::vector{2, 2, 2, 1});
  CHECK(expand_counts("4") == std::vector{4});
  for (const char* bad : {"", "2(x", "2(x3", "(x3)", "2,", "two"}) {
    INFO(bad);
    CHECK(refusal([&] { expand_counts(bad); }) ==
          "4: cannot read the counts \"" + std::string(bad) + "\": expected numbers such as 2(x3),1");
  }
}

TEST_CASE("launchers are detected in the order torchrun, Slurm, MPI") {
  Map all = slurm_step;
  all.insert(mpich.begin(), mpich.end());
  all.insert(openmpi.begin(), openmpi.end());
  all.insert(torchrun.begin(), torchrun.end());
  auto cluster = [](const Map& map) { return placed(map).cluster; };
  CHECK(cluster(all) == "torchrun");
  CHECK(cluster(with(all, {{"TORCHELASTIC_RUN_ID", "(unset)"}})) == "slurm");
  CHECK(cluster(with(mpich, openmpi)) == "openmpi");
  CHECK(cluster(mpich) == "mpich");
  CHECK(cluster({}) == "local");
  CHECK(cluster({{"RANK", "0"}, {"WORLD_SIZE", "2"}}) == "local");
  CHECK(find_placement("slurm", from(all)).cluster == "slurm");
  CHECK(find_placement("local", from(all)).launched == false);
  CHECK(refusal_of({}, "slrum") ==
        "2: unknown devices.cluster \"slrum\": expected auto, torchrun, slurm, lsf, openmpi, mpich, horovod, bagua, "
        "kubeflow or local; did you mean \"slurm\"?");
}

TEST_CASE("torchrun: ranks, nodes and address") {
  Placement p = placed(torchrun);
  CHECK(p.launched);
  CHECK(numbers_of(p) == std::vector{5, 8, 1, 4, 1, 2});
  CHECK(p.master_addr == "node-a");
  CHECK(p.master_port == 29511);
  check_placement(p, 4, 2);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    CHECK(refusal_of(with(torchrun, {{name, "(unset)"}})) ==
          "4: " + std::string(name) + " is not set; torchrun sets it for every rank: is this process started by it?");
  CHECK(refusal_of(with(torchrun, {{"RANK", "-1"}})) == "4: RANK=\"-1\" is not a whole number >= 0 (torchrun sets it)");
  CHECK(refusal_of(with(torchrun, {{"MASTER_PORT", "70000"}})) == "4: MASTER_PORT=70000 is not a port: 1 to 65535");
}

TEST_CASE("Kubeflow: one rank per pod, detected only if the recipe names it") {
  const Map pod{{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
  CHECK(refusal_of(pod) ==
        "4: RANK, WORLD_SIZE = 4 and MASTER_ADDR are set, but their launcher is not known. If it starts one process "
        "per rank and sets LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK, set devices.cluster = \"torchrun\"; if RANK "
        "counts nodes, as in Kubeflow's PyTorchJob, \"kubeflow\"; to ignore the variables, \"local\"");
  CHECK(find_placement("local", from(pod)).cluster == "local");
  CHECK(placed(with(pod, {{"WORLD_SIZE", "1"}})).cluster == "local");
  Placement p = find_placement("kubeflow", from(pod));
  CHECK(p.launched);
  CHECK(numbers_of(p) == std::vector{2, 4, 0, 1, 2, 4});
  CHECK(p.master_addr == "job-master-0");
  CHECK(p.master_port == 23456);
  check_placement(p, 1, 4);
  CHECK(refusal([&] { check_placement(p, 2, 4); }) ==
        "2: the recipe uses 2 devices per node, but Kubeflow started 1 rank on this node: set devices.devices = 1 "
        "(devices.cpu_processes on CPU), or start 2 ranks per node (2 for each pod, and a pod has one; with "
        "nprocPerNode the pods run torchrun)");
  CHECK(refusal_of(with(pod, {{"RANK", "(unset)"}}), "kubeflow") ==
        "4: RANK is not set; Kubeflow sets it for every rank: is this process started by it?");
  CHECK(refusal_of(with(pod, {{"MASTER_ADDR", "(unset)"}}), "kubeflow") ==
        "2: Kubeflow started 4 ranks on 4 nodes but gives no rendezvous address: set MASTER_ADDR to the host of rank 0 "
        "for every rank");
}

TEST_CASE("horovodrun: ranks and nodes; its rendezvous host, with another port") {
  const Map rank{{"HOROVOD_RANK", "3"},
                 {"HOROVOD_SIZE", "4"},
                 {"HOROVOD_LOCAL_RANK", "1"},
                 {"HOROVOD_LOCAL_SIZE", "2"},
                 {"HOROVOD_CROSS_RANK", "1"},
                 {"HOROVOD_CROSS_SIZE", "2"},
                 {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                 {"HOROVOD_GLOO_RENDEZVOUS_PORT", "3456"}};
  const Placement p = placed(rank);
  CHECK(p.cluster == "horovod");
  CHECK(p.launched);
  CHECK(numbers_of(p) == std::vector{3, 4, 1, 2, 1, 2});
  CHECK(p.master_addr == "10.0.0.1");
  CHECK(p.master_port != 3456);
  CHECK(p.master_port == placed(with(rank, {{"HOROVOD_RANK", "0"}})).master_port);
  check_placement(p, 2, 2);
  CHECK(refusal_of(with(rank, {{"HOROVOD_SIZE", "(unset)"}})) ==
        "4: HOROVOD_SIZE is not set; horovodrun sets it for every rank: is this process started by it?");
}

TEST_CASE("Bagua's launcher: ranks and nodes, detected by the port of its service") {
  const Map rank{
      {"RANK", "5"},      {"WORLD_SIZE", "8"},       {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "4"},
      {"NODE_RANK", "1"}, {"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "2345"}, {"BAGUA_SERVICE_PORT", "6789"}};
  const Placement p = placed(rank);
  CHECK(p.cluster == "bagua");
  CHECK(numbers_of(p) == std::vector{5, 8, 1, 4, 1, 2});
  CHECK(p.master_addr == "node-a");
  CHECK(p.master_port == 2345);
}

TEST_CASE("LSF: ranks from jsrun, hosts from the rank file without the launch node") {
  TemporaryFolder folder;
  auto ranks = (folder.path / "ranks").string();
  std::ofstream(ranks) << "batch1\nc05n01\nc05n01\nc05n02\nc05n02\n";
  const Map task{{"LSB_JOBID", "77"},         {"LSB_DJOB_RANKFILE", ranks},      {"JSM_NAMESPACE_SIZE", "4"},
                 {"JSM_NAMESPACE_RANK", "3"}, {"JSM_NAMESPACE_LOCAL_RANK", "1"}, {"HOSTNAME", "c05n02.cluster"}};
  Placement p = placed(task);
  CHECK(p.cluster == "lsf");
  CHECK(numbers_of(p) == std::vector{3, 4, 1, 2, 1, 2});
  CHECK(p.master_addr == "c05n01");
  CHECK(p.master_port == derived_port("lsf/77"));
  check_placement(p, 2, 2);
  CHECK(refusal_of(with(task, {{"HOSTNAME", "elsewhere"}})) ==
        "4: this host, " + host_name() +
            " (HOSTNAME=elsewhere), is not in LSB_DJOB_RANKFILE, which names c05n01, c05n02");
  CHECK(refusal_of(with(task, {{"JSM_NAMESPACE_RANK", "(unset)"}})) ==
        "4: JSM_NAMESPACE_RANK is not set; LSF's jsrun sets it for every rank: is this process started by it?");
  CHECK(refusal_of(with(task, {{"LSB_DJOB_RANKFILE", ranks + ".none"}})) ==
        "4: LSB_DJOB_RANKFILE=" + ranks + ".none names no compute host");
}

TEST_CASE("LSF: the real host name decides the node, also if jsrun passes on the HOSTNAME of another node") {
  REQUIRE(!host_name().empty());
  TemporaryFolder folder;
  const auto ranks = (folder.path / "ranks").string();
  const Map task{{"LSB_JOBID", "77"},         {"LSB_DJOB_RANKFILE", ranks},      {"JSM_NAMESPACE_SIZE", "2"},
                 {"JSM_NAMESPACE_RANK", "1"}, {"JSM_NAMESPACE_LOCAL_RANK", "0"}, {"HOSTNAME", "other-node"}};
  std::ofstream(ranks) << "batch1\nother-node\n" << host_name() << "\n";
  CHECK(placed(task).node_rank == 1);
  CHECK(placed(with(task, {{"HOSTNAME", "(unset)"}})).node_rank == 1);
  std::ofstream(ranks) << "batch1\n" << host_name() << "\nother-node\n";
  CHECK(placed(task).node_rank == 0);
}

TEST_CASE("torchrun: all ranks derive the same port, which is not the agent's port") {
  Map shared = with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  int port = placed(shared).master_port;
  CHECK(port != 29511);
  CHECK(port >= 20000);
  CHECK(port < 32768);
  CHECK(placed(with(shared, {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"GROUP_RANK", "0"}})).master_port == port);
  CHECK(placed(with(shared, {{"MASTER_PORT", "29512"}})).master_port != port);
}

TEST_CASE("Slurm: ranks, nodes, the first host and a port that all tasks derive equally") {
  Placement p = placed(slurm_step);
  CHECK(p.launched);
  CHECK(numbers_of(p) == std::vector{5, 8, 1, 4, 1, 2});
  CHECK(p.master_addr == "gpu07");
  CHECK(p.job_id == "4242");
  CHECK(p.master_port == derived_port("slurm/4242.0"));
  check_placement(p, 4, 2);
  Placement named = placed(with(slurm_step, {{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "4000"}}));
  CHECK(named.master_addr == "10.0.0.7");
  CHECK(named.master_port == 4000);
  CHECK(placed(with(slurm_step, {{"SLURM_STEP_ID", "1"}})).master_port != p.master_port);
}

TEST_CASE("Slurm: a step on one node uses the loopback address, for any host name") {
  Map one = with(slurm_step, {{"SLURM_NODEID", "0"},
                              {"SLURM_STEP_NUM_NODES", "1"},
                              {"SLURM_STEP_NUM_TASKS", "4"},
                              {"SLURM_STEP_TASKS_PER_NODE", "4"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_STEP_NODELIST", "gpu07"}});
  Placement p = placed(one);
  CHECK(p.master_addr == "127.0.0.1");
  CHECK(p.num_nodes == 1);  // the job has two nodes, the step has one
  CHECK(p.world_size == 4);
}

TEST_CASE("Slurm: several tasks without srun are refused, one task runs locally") {
  CHECK(refusal_of(slurm_batch) ==
        "2: Slurm allocated 8 tasks on 2 nodes to job 4242, but this process is none of them: it was started without "
        "srun. Write `srun runner run RECIPE` (one task per device), or set devices.cluster = \"local\" to use this "
        "host alone");
  Map salloc = with(slurm_batch,
                    {{"SLURM_PROCID", "(unset)"}, {"SLURMD_NODENAME", "(unset)"}, {"SLURM_JOB_NAME", "interactive"}});
  CHECK(refusal_of(salloc).starts_with("2: Slurm allocated 8 tasks on 2 nodes"));
  Map one_task = with(slurm_batch, {{"SLURM_NTASKS", "1"}, {"SLURM_NNODES", "1"}});
  CHECK(placed(one_task).cluster == "local");
  CHECK(placed(with(one_task, {{"SLURM_NTASKS", "(unset)"}})).cluster == "local");
  CHECK(find_placement("local", from(slurm_batch)).cluster == "local");
  CHECK(refusal_of({}, "slurm") == "4: SLURM_JOB_ID is not set; Slurm sets it: is this process started by srun?");
}

TEST_CASE("inside a job of Slurm, ranks that mpirun or horovodrun started are theirs") {
  const auto inside = [](Map job, const Map& rank) {
    job.insert(rank.begin(), rank.end());
    return placed(job);
  };
  const Map gloo{{"HOROVOD_RANK", "1"},       {"HOROVOD_SIZE", "2"},       {"HOROVOD_LOCAL_RANK", "1"},
                 {"HOROVOD_LOCAL_SIZE", "2"}, {"HOROVOD_CROSS_RANK", "0"}, {"HOROVOD_CROSS_SIZE", "1"}};
  const Map one_node{{"SLURM_JOB_ID", "4242"}, {"SLURM_NTASKS", "2"}, {"SLURM_NNODES", "1"}};
  for (const auto& job : {one_node, slurm_batch}) {
    CHECK(inside(job, openmpi).cluster == "openmpi");
    CHECK(inside(job, openmpi).rank == 1);
    CHECK(inside(job, mpich).cluster == "mpich");
    CHECK(inside(job, gloo).cluster == "horovod");
  }
  CHECK(refusal_of(one_node).starts_with("2: Slurm allocated 2 tasks on 1 node"));
  CHECK(inside({{"SLURM_JOB_ID", "4242"}}, openmpi).cluster == "openmpi");
  // srun started one daemon on each of two nodes, and each daemon started ranks.
  const Map daemons = with(slurm_step, {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}});
  const Map rank = with(openmpi, {{"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_RANK", "3"},
                                  {"MASTER_ADDR", "gpu07"},
                                  {"MASTER_PORT", "29500"}});
  CHECK(inside(daemons, rank).cluster == "openmpi");
  CHECK(inside(daemons, rank).node_rank == 1);
  CHECK(inside(slurm_step, rank).cluster == "slurm");
}

TEST_CASE("Slurm: interactive shells run locally, srun inside them gives ranks") {
  Map one_task = with(slurm_step, {{"SLURM_PROCID", "0"},
                                   {"SLURM_LOCALID", "0"},
                                   {"SLURM_NODEID", "0"},
                                   {"SLURM_NTASKS", "1"},
                                   {"SLURM_STEP_NUM_TASKS", "1"},
                                   {"SLURM_STEP_NUM_NODES", "1"},
                                   {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  CHECK(placed(with(one_task, {{"SLURM_JOB_NAME", "bash"}})).cluster == "local");
  CHECK(placed(with(one_task, {{"SLURM_PTY_PORT", "33849"}})).cluster == "local");
  CHECK(placed(one_task).cluster == "slurm");
  // salloc with a shell on the first node: step 0xfffffffa, with the tasks of the job
  CHECK(placed(with(slurm_batch, {{"SLURM_STEP_ID", "4294967290"}})).cluster == "local");
  // srun in that shell keeps the job name of the shell
  CHECK(placed(with(slurm_step, {{"SLURM_JOB_NAME", "interactive"}, {"SLURM_PTY_PORT", "1"}})).cluster == "slurm");
}

TEST_CASE("Slurm: contradicting or missing variables are named") {
  CHECK(refusal_of(with(slurm_step, {{"SLURM_LOCALID", "(unset)"}})) ==
        "4: SLURM_LOCALID is not set; Slurm sets it for every rank: is this process started by it?");
  CHECK(refusal_of(with(slurm_step, {{"SLURM_PROCID", "x"}})) ==
        "4: SLURM_PROCID=\"x\" is not a whole number >= 0 (Slurm sets it)");
  CHECK(refusal_of(with(slurm_step, {{"SLURM_STEP_TASKS_PER_NODE", "4"}})) ==
        "4: Slurm's variables disagree: SLURM_STEP_NUM_TASKS=8 and SLURM_STEP_NUM_NODES=2, but "
        "SLURM_STEP_TASKS_PER_NODE=4 means 4 tasks on 1 node");
  CHECK(refusal_of(with(slurm_step, {{"SLURM_NODEID", "2"}})) == "4: SLURM_NODEID=2 is beyond the 2 nodes of the step");
}

TEST_CASE("Open MPI: one node uses the loopback address, several nodes need MASTER_ADDR") {
  Placement p = placed(openmpi);
  CHECK(p.rank == 1);
  CHECK(p.local_size == 2);
  CHECK(p.node_rank == 0);
  CHECK(p.num_nodes == 1);
  CHECK(p.master_addr == "127.0.0.1");
  CHECK(p.master_port == derived_port("openmpi/1085734913"));
  check_placement(p, 2, 1);
  Map two = with(openmpi, {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(refusal_of(two) ==
        "2: Open MPI's mpirun started 4 ranks on 2 nodes but gives no rendezvous address: set MASTER_ADDR to the "
        "host of rank 0 for every rank");
  two["MASTER_ADDR"] = "node-a";
  p = placed(two);
  CHECK(p.node_rank == 1);
  CHECK(p.job_id == "1085734913");
  CHECK(placed(with(two, {{"OMPI_COMM_WORLD_RANK", "0"}})).job_id == p.job_id);
  CHECK(p.master_addr == "node-a");
  check_placement(p, 2, 2);
}

TEST_CASE("MPICH: one node uses the loopback address, several nodes need address and port") {
  Placement p = placed(mpich);
  CHECK(p.rank == 1);
  CHECK(p.num_nodes == 1);
  CHECK(p.master_addr == "127.0.0.1");
  CHECK(p.master_port >= 20000);
  CHECK(p.master_port < 32768);
  CHECK(placed(mpich).master_port == p.master_port);
  Map two = with(mpich, {{"PMI_SIZE", "4"}, {"MASTER_ADDR", "node-a"}});
  CHECK(refusal_of(two) ==
        "2: MPICH's mpirun started 4 ranks on 2 nodes but gives neither a rendezvous address nor a job id: set "
        "MASTER_ADDR (the host of rank 0) and MASTER_PORT for every rank");
  two["MASTER_PORT"] = "5000";
  p = placed(two);
  CHECK(p.master_port == 5000);
  CHECK(p.job_id == "node-a:5000");
  // The proxy of the other node is another process.
  pid_t proxy = ::fork();
  if (proxy == 0) {
    pid_t rank = ::fork();
    if (rank == 0) ::_exit(placed(with(two, {{"PMI_RANK", "2"}})).job_id == p.job_id ? 0 : 1);
    int status = 1;
    ::waitpid(rank, &status, 0);
    ::_exit(status != 0);
  }
  int status = 1;
  ::waitpid(proxy, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a launcher that contradicts the recipe is refused, with both values and a solution") {
  Placement p = placed(slurm_step);
  CHECK(refusal([&] { check_placement(p, 4, 3); }) ==
        "2: the recipe uses 3 nodes, but Slurm started 2: set devices.num_nodes = 2, or start 3 (--nodes=3)");
  CHECK(refusal([&] { check_placement(p, 8, 2); }) ==
        "2: the recipe uses 8 devices per node, but Slurm started 4 ranks on this node: set devices.devices = 4 "
        "(devices.cpu_processes on CPU), or start 8 ranks per node (srun --ntasks-per-node=8)");
  check_placement(p, 0, 0);  // the recipe leaves both values to the launcher
  CHECK(refusal([&] { check_placement(placed(torchrun), 2, 2); }).ends_with("(--nproc-per-node=2)"));
  CHECK(refusal([&] { check_placement(placed(openmpi), 4, 1); }).ends_with("(--map-by ppr:4:node)"));
  CHECK(refusal([&] { check_placement(placed(mpich), 4, 1); }).ends_with("(-ppn 4)"));
}

TEST_CASE("nodes with different numbers of ranks, and ranks in round-robin order over nodes, are refused") {
  Placement uneven = find_placement(
      "auto", from(with(slurm_step, {{"SLURM_STEP_NUM_TASKS", "7"}, {"SLURM_STEP_TASKS_PER_NODE", "3,4"}})));
  CHECK(refusal([&] { check_placement(uneven, 4, 2); }) ==
        "2: Slurm started 7 ranks, which is not 2 nodes x 4 ranks: every node needs the same number (srun "
        "--ntasks-per-node=4)");
  Placement cyclic = placed(with(slurm_step, {{"SLURM_PROCID", "3"}}));
  CHECK(refusal([&] { check_placement(cyclic, 4, 2); }) ==
        "2: Slurm did not number the ranks node by node: rank 3 of 8 is number 1 of the 4 on its node (srun "
        "--ntasks-per-node=4 --distribution=block)");
}

TEST_CASE("explicit device indices under a launcher give a warning") {
  CHECK(explicit_indices_warning(placed(slurm_step), {1, 3}) ==
        "devices = [1, 3] under Slurm: the launcher already assigns devices to each rank, and indices refer to the "
        "devices in CUDA_VISIBLE_DEVICES, so they may be invalid or select devices of another job; use a count: "
        "devices = 2");
  CHECK(explicit_indices_warning(placed(slurm_step), {}).empty());
  CHECK(explicit_indices_warning(placed({}), {1, 3}).empty());
}

TEST_CASE("derived ports differ between jobs and are below the range of outgoing connections") {
  CHECK(derived_port("slurm/1.0") == derived_port("slurm/1.0"));
  CHECK(derived_port("slurm/1.0") != derived_port("slurm/2.0"));
  for (int job = 0; job < 1000; ++job) {
    int port = derived_port(std::to_string(job));
    REQUIRE(port >= 20000);
    REQUIRE(port < 32768);
  }
}
