// Plans for the devices of a PJRT plug-in that does not compute on the host.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/xla/entry.hpp"
#include "tests/selection/small_plans.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t mebibyte = 1 << 20;

/// Found by the system, so the planner does not look for the file.
Recipe recipe_for(const std::string& plugin) {
  Recipe recipe = small_recipe();
  recipe.strategy.name = "xla_fsdp";
  recipe.strategy.options = {{"plugin", plugin}};
  recipe.train.micro_batch_size = Recipe::automatic;
  recipe.train.global_batch_size = 64;
  return recipe;
}

/// Eight devices of a host whose memory is far too small for an equal share of a step.
Topology small_host(const Recipe& recipe) {
  Topology topology = cpus(8);
  topology.host_memory_bytes = 32 * mebibyte;
  topology.pjrt_devices = has_pjrt_devices(recipe);
  return topology;
}

Plan plan_for(const std::string& plugin, int64_t memory_limit = 0) {
  Recipe recipe = recipe_for(plugin);
  if (memory_limit > 0) recipe.devices.memory_limit = memory_limit;
  return make_plan(recipe, small_host(recipe), 256);
}

bool xla_is_built() { return find_strategy("xla_fsdp")->entry->unavailable.empty(); }

}  // namespace

TEST_CASE("only the plug-in for CPUs computes on the host") {
  CHECK(computes_on_host(""));
  CHECK(computes_on_host("/opt/xla/libpjrt_cpu.so"));
  CHECK_FALSE(computes_on_host("libtpu.so"));
  CHECK(plugin_of_devices({{"plugin", nullptr}}).empty());
  CHECK(plugin_of_devices({{"plugin", "libpjrt_cpu.so"}}).empty());
  CHECK(plugin_of_devices({{"plugin", "./libtpu.so"}}) == "./libtpu.so");
  CHECK(has_pjrt_devices(recipe_for("libtpu.so")));
  CHECK_FALSE(has_pjrt_devices(recipe_for("libpjrt_cpu.so")));
  Recipe simulated = recipe_for("libtpu.so");
  simulated.devices.simulate = true;
  CHECK_FALSE(has_pjrt_devices(simulated));
}

TEST_CASE("the micro-batch of a plug-in's devices does not follow host memory, but devices.memory_limit") {
  if (!xla_is_built()) SKIP("this build has no XLA");
  const Plan on_cpu = plan_for("libpjrt_cpu.so"), on_devices = plan_for("libtpu.so");
  CHECK(on_cpu.job.micro_batch_size < 8);
  CHECK(on_devices.job.micro_batch_size == 8);
  CHECK(on_devices.job.accelerator.noun() == "PJRT device");
  CHECK(on_devices.job.accelerator.platform == "pjrt");
  for (const auto& note : on_devices.notes) CHECK_THAT(note, !ContainsSubstring("memory"));
  const Plan limited = plan_for("libtpu.so", on_devices.memory_bytes() / 2);
  CHECK(limited.job.micro_batch_size < 8);
  CHECK(limited.memory_bytes() <= on_devices.memory_bytes() / 2);
}

TEST_CASE("host memory has the copy of parameters and optimizer state, and the devices have them once") {
  if (!xla_is_built()) SKIP("this build has no XLA");
  const Plan plan = plan_for("libtpu.so");
  const int64_t parameters = plan.model->parameter_count() * 4;
  CHECK(plan.memory.parameters >= parameters / 8);
  CHECK(plan.memory.parameters < parameters / 8 + mebibyte / 16);
  CHECK(plan.memory.host == plan.memory.parameters + plan.memory.optimizer);
  CHECK(plan.host_bytes() >= plan.memory.host);
  CHECK(plan.memory_bytes() == plan.memory.total());
  const auto limit = memory_limit(small_host(plan.recipe), 0);
  CHECK(limit.device == 0);
  CHECK(limit.context == 0);
  CHECK(limit.host == 4 * mebibyte);
  CHECK(memory_limit(small_host(plan.recipe), 512 * mebibyte).device == 512 * mebibyte);
}
