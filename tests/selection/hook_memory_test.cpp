// The memory that hooks keep, as the planner counts it.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/selection/recipe_place.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;

namespace {

MemoryParts parts_of(const std::string& strategy, const std::string& hooks, const Topology& topology = cpus(2)) {
  RecipePlace place("strategy = " + strategy, "[hooks]\nfiles = [" + hooks + "]\n");
  place.write("mine.lua",
              "return {options = {bytes = {type = 'integer', default = 7}},\n"
              "memory = function(job, options) return options.bytes end}");
  place.write("broken.lua", "return {\n  memory = function(job) return job.held .. 'x' end}");
  place.write("both.lua", "return {memory = function() return {device = 5, host = 6} end}");
  place.write("odd.lua", "return {memory = function() return {disk = 6} end}");
  place.write("absurd.lua", "return {memory = function() return math.huge end}");
  return make_plan(place.load(), topology, 256).memory;
}

}  // namespace

TEST_CASE("memory that hooks keep is counted in the memory of a plan", "[lua]") {
  for (std::string strategy :
       {R"("ddp")", R"({name = "fsdp", sharding_strategy = "FULL_SHARD"})", R"("deepspeed_stage_1")"}) {
    INFO(strategy);
    auto without = parts_of(strategy, ""), with = parts_of(strategy, R"("ema", "loss_spike_rewind", "mine.lua")");
    CHECK(without.hooks == 0);
    CHECK(with.hooks == 4 * with.held * (1 + 2 * 3) + 7);  // ema's average, loss_spike_rewind's two snapshots, mine.lua
    CHECK(with.total() == without.total() + with.hooks);
    CHECK(with.between_steps == without.between_steps + with.hooks);
    CHECK(with.held * 8 == with.optimizer);
    CHECK(parts_of(strategy, R"("gradient_norms")").hooks == 0);
  }
}

TEST_CASE("hooks that copy parameters also copy frozen ones, without optimizer state", "[lua]") {
  RecipePlace place("strategy = \"ddp\"", "[hooks]\nfiles = [\"ema\", \"loss_spike_rewind\"]\n");
  auto recipe = place.load();
  recipe.model.frozen = {"embedding.*", "blocks.*"};
  const auto plan = make_plan(recipe, cpus(2), 256);
  const int64_t all = plan.model->parameter_count(), trained = plan.memory.held;
  CHECK(plan.memory.stored == all);
  CHECK(trained < all / 2);
  CHECK(plan.memory.hooks == 4 * (all + 2 * (all + 2 * trained)));
}

TEST_CASE("with offload, the memory that hooks keep is in host memory", "[lua]") {
  const std::string offloaded = R"({name = "zero", stage = 2, offload_optimizer = true})";
  auto gpus = topology_of(*find_device_kind("h100-80g"), 2, 1);
  auto without = parts_of(offloaded, "", gpus), with = parts_of(offloaded, R"("ema")", gpus);
  CHECK(with.held_on_host);
  CHECK(with.hooks == 0);
  CHECK(with.host == without.host + 4 * with.held);
}

TEST_CASE("host memory that hooks keep is not device memory, if the device has separate memory") {
  auto gpus = topology_of(*find_device_kind("h100-80g"), 2, 1);
  auto without = parts_of(R"("ddp")", "", gpus), with = parts_of(R"("ddp")", R"("ema", "both.lua")", gpus);
  CHECK(with.hooks == 4 * with.held + 5);
  CHECK(with.host == without.host + 6);
  CHECK(parts_of(R"("ddp")", R"("both.lua")").hooks == 11);  // a CPU rank has only host memory
}

TEST_CASE("a hook whose `memory` fails or does not return a number is refused with its position", "[lua]") {
  CHECK_THROWS_WITH(
      parts_of(R"("ddp")", R"("broken.lua")"),
      ContainsSubstring(
          "`memory` must return the bytes that a rank keeps, or {device = bytes, host = bytes}, not a string"));
  CHECK_THROWS_WITH(
      parts_of(R"("ddp")", R"("absurd.lua")"),
      ContainsSubstring(
          "`memory` must return the bytes that a rank keeps, or {device = bytes, host = bytes}, not inf"));
  CHECK_THROWS_WITH(parts_of(R"("ddp")", R"("odd.lua")"), ContainsSubstring("host = bytes}, not a table"));
}
