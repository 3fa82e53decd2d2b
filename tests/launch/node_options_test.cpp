// The placement of ranks by --node-rank, --master-addr and --master-port, in fixed and in elastic runs.
#include <catch2/catch_test_macros.hpp>

#include "runner/launch/cluster.hpp"
#include "tests/support/refusal.hpp"

using namespace runner;
using runner::testing::refusal;

namespace {

Placement unlaunched() {
  return find_placement("auto", [](const std::string&) { return std::nullopt; });
}

Placement launched_by(const std::string& cluster) {
  Placement p = unlaunched();
  p.launched = true;
  p.cluster = cluster;
  return p;
}

}  // namespace

TEST_CASE("without a launcher the node options define the placement of ranks") {
  Placement p = unlaunched();
  apply_node_options(p, {}, 4, 1);
  CHECK(p.world_size == 4);
  CHECK(p.local_size == 4);
  CHECK(p.master_port == 0);
  check_placement(p, 4, 1);

  p = unlaunched();
  apply_node_options(p, {.node_rank = 2, .master_addr = "node-a", .master_port = {}}, 4, 3);
  CHECK(p.rank == 8);
  CHECK(p.world_size == 12);
  CHECK(p.node_rank == 2);
  CHECK(p.master_addr == "node-a");
  CHECK(p.master_port == 29500);
}

TEST_CASE("in an elastic run only node 0 needs a number") {
  const auto joined = [](std::optional<int> node_rank) {
    Placement p = unlaunched();
    apply_elastic_options(p, {.node_rank = node_rank, .master_addr = "a", .master_port = 3}, 4, 2);
    return p;
  };
  const Placement leader = joined(0);
  CHECK(leader.elastic);
  CHECK(leader.rank == 0);
  CHECK(leader.world_size == 8);
  CHECK(leader.master_addr == "a");
  CHECK(leader.master_port == 3);
  for (const std::optional<int> node_rank : {std::optional<int>(), std::optional(1), std::optional(7)})
    CHECK(joined(node_rank).rank == 4);  // until the leader numbers it
}

TEST_CASE("an elastic run without an address, or under a launcher, is refused") {
  const auto applied = [](Placement p, const NodeOptions& options) {
    return refusal([&] { apply_elastic_options(p, options, 4, 2); });
  };
  CHECK(
      applied(unlaunched(), {.node_rank = 0, .master_addr = {}, .master_port = {}}) ==
      "2: an elastic run (devices.min_nodes, max_nodes) needs --master-addr HOST on each node, the host of node 0, and "
      "--node-rank 0 there");
  CHECK(applied(unlaunched(), {.node_rank = -1, .master_addr = "a", .master_port = {}}) ==
        "2: --node-rank -1: in an elastic run it is 0 on the first node, and the others need none");
  CHECK(applied(unlaunched(), {.node_rank = 0, .master_addr = "a", .master_port = 70000}) ==
        "2: --master-port 70000 is not a port: 1 to 65535");
  CHECK(applied(launched_by("slurm"), {.node_rank = {}, .master_addr = {}, .master_port = {}}) ==
        "2: devices.min_nodes and max_nodes under Slurm: it starts one `runner` for each rank and decides which nodes "
        "there are; set devices.cluster = \"local\" and start `runner run` once on each node, or remove the two keys");
}

TEST_CASE("missing or contradicting node options are refused") {
  const auto applied = [](Placement p, const NodeOptions& options, int nodes) {
    return refusal([&] { apply_node_options(p, options, 4, nodes); });
  };
  CHECK(
      applied(unlaunched(), {}, 2) ==
      "2: devices.num_nodes = 2 without a launcher: start the same command on each node with --node-rank 0 to 1 and "
      "--master-addr HOST, the host of node 0 (--node-rank is missing); or start it through srun, torchrun or mpirun");
  CHECK(applied(unlaunched(), {.node_rank = 0, .master_addr = {}, .master_port = {}}, 2)
            .find("(--master-addr is missing)") != std::string::npos);
  CHECK(applied(unlaunched(), {.node_rank = 2, .master_addr = "a", .master_port = {}}, 2) ==
        "2: --node-rank 2 is outside 0 to 1 (devices.num_nodes = 2)");
  CHECK(applied(unlaunched(), {.node_rank = 1, .master_addr = "a", .master_port = 0}, 2) ==
        "2: --master-port 0 is not a port: 1 to 65535");
  CHECK(applied(unlaunched(), {.node_rank = {}, .master_addr = "a", .master_port = {}}, 1) ==
        "2: --master-addr is for several nodes, but the recipe has devices.num_nodes = 1");
  CHECK(applied(launched_by("torchrun"), {.node_rank = 1, .master_addr = {}, .master_port = {}}, 2) ==
        "2: --node-rank under torchrun: the launcher already sets the rank of this process; leave it out, or set "
        "devices.cluster = \"local\"");
}
