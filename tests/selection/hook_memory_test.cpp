// What hooks keep, as the planner counts it.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/files.hpp"
#include "runner/config/config.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/strategy_options.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

Topology two_cpus() {
  Topology topology;
  topology.devices_per_node = 2;
  topology.cores = 8;
  topology.device_reason = "asked for";
  return topology;
}

MemoryParts parts_of(const std::string& strategy, const std::string& hooks, const Topology& topology = two_cpus()) {
  TemporaryFolder folder;
  write_file_atomic(folder.path / "mine.lua",
                    "return {options = {bytes = {type = 'integer', default = 7}},\n"
                    "memory = function(job, options) return options.bytes end}");
  write_file_atomic(folder.path / "broken.lua", "return {\n  memory = function(job) return job.held .. 'x' end}");
  write_file_atomic(folder.path / "recipe.toml", "strategy = " + strategy + R"(
[model]
name = "gpt"
n_layers = 2
dim = 64
n_heads = 4
max_seq_len = 32
[data]
format = "text"
train = ["text.txt"]
[train]
max_steps = 10
global_batch_size = 8
[hooks]
files = [)" + hooks + "]\n");
  return make_plan(load_whole_recipe((folder.path / "recipe.toml").string(), {}), topology, 256).memory;
}

}  // namespace

TEST_CASE("what hooks keep is counted in the memory of a plan", "[lua]") {
  for (std::string strategy :
       {R"("ddp")", R"({name = "fsdp", sharding_strategy = "FULL_SHARD"})", R"("deepspeed_stage_1")"}) {
    INFO(strategy);
    auto without = parts_of(strategy, ""), with = parts_of(strategy, R"("ema", "loss_spike_rewind", "mine.lua")");
    CHECK(without.hooks == 0);
    CHECK(with.hooks == 4 * with.held * (1 + 3) + 7);
    CHECK(with.total() == without.total() + with.hooks);
    CHECK(with.between_steps == without.between_steps + with.hooks);
    CHECK(with.held * 8 == with.optimizer);
    CHECK(parts_of(strategy, R"("freezing")").hooks == 0);
  }
}

TEST_CASE("what an offloaded rank's hooks keep is in host memory", "[lua]") {
  const std::string offloaded = R"({name = "zero", stage = 2, offload_optimizer = true})";
  auto gpus = topology_of(*find_device_kind("h100-80g"), 2, 1);
  auto without = parts_of(offloaded, "", gpus), with = parts_of(offloaded, R"("ema")", gpus);
  CHECK(with.held_on_host);
  CHECK(with.hooks == 0);
  CHECK(with.host == without.host + 4 * with.held);
}

TEST_CASE("a hook whose `memory` fails or says no number is refused with its place", "[lua]") {
  CHECK_THROWS_WITH(parts_of(R"("ddp")", R"("broken.lua")"),
                    ContainsSubstring("`memory` must return the bytes that a rank keeps, not a string"));
}
