// Device slots: the groups of GPUs or cores that each train one trial at a time.
#include "runner/sweep/slots.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/config/config.hpp"
#include "tests/support/refusal.hpp"
#include "tests/sweep/sweep_place.hpp"

using namespace runner;
using namespace runner::sweep;
using namespace runner::testing;
using Catch::Matchers::StartsWith;

namespace {

/// A machine with `count` GPUs, of which somebody uses the one with the index `busy`.
Facts with_gpus(int count, int busy = -1) {
  Facts facts;
  facts.cuda_module = true;
  for (int i = 0; i < count; ++i)
    facts.devices.push_back({i, "NVIDIA H100", int64_t{80} << 30, int64_t{79} << 30, 9, 0, i == busy ? 1 : 0});
  return facts;
}

}  // namespace

TEST_CASE("device slots of free GPUs are groups of free ones, and all GPUs are one slot") {
  const Facts facts = with_gpus(6, 1);
  Recipe recipe = parse_recipe(swept_recipe, "base.toml", {"devices=\"free:2\""});
  auto slots = device_slots(recipe, facts, {});
  REQUIRE(slots.size() == 2);
  CHECK(slots[0].name == "cuda:0,2");
  CHECK(slots[1].environment.at("CUDA_VISIBLE_DEVICES") == "3,4");
  CHECK(slots[1].overrides == std::vector<std::string>{"devices.devices=2"});
  CHECK_THAT(refusal([&] { device_slots(recipe, facts, 3); }),
             StartsWith("2: parallel = 3 trials with 2 CUDA devices each need 6, and there are 5 free: "));
  recipe.devices.devices = {DeviceRequest::Kind::count, -1, {}};
  slots = device_slots(recipe, facts, {});
  REQUIRE(slots.size() == 1);
  CHECK(slots[0].name == "cuda:0,1,2,3,4,5");
  CHECK(slots[0].overrides.empty());
  CHECK_THROWS_AS(device_slots(recipe, facts, 2), Error);
}

TEST_CASE("a trial gets the devices that the mesh of its recipe needs") {
  Facts facts;
  facts.cores = 8;
  Recipe recipe = parse_recipe(swept_recipe, "base.toml", {"devices.mesh={tensor=2}"});
  CHECK(device_slots(recipe, facts, {}).size() == 4);
  facts = with_gpus(4);
  const auto pairs = device_slots(recipe, facts, {});
  REQUIRE(pairs.size() == 2);
  CHECK(pairs[1].name == "cuda:2,3");
  recipe.devices.mesh->shard = 2;
  const auto all = device_slots(recipe, facts, {});
  REQUIRE(all.size() == 1);
  CHECK(all[0].name == "cuda:0,1,2,3");
}

TEST_CASE("device slots are groups of GPUs or of cores") {
  Facts facts;
  facts.cores = 8;
  Recipe recipe = parse_recipe(swept_recipe, "base.toml");
  CHECK(device_slots(recipe, facts, {}).size() == 8);
  auto slots = device_slots(recipe, facts, 2);
  REQUIRE(slots.size() == 2);
  CHECK(slots[1].name == "cpu:1");
  CHECK(slots[1].overrides == std::vector<std::string>{"devices.threads_per_rank=4"});
  CHECK(device_slots(recipe, facts, 1)[0].overrides.empty());
  facts = with_gpus(4);
  slots = device_slots(recipe, facts, {});
  REQUIRE(slots.size() == 4);
  CHECK(slots[2].environment.at("CUDA_VISIBLE_DEVICES") == "2");
  slots = device_slots(recipe, facts, 2);
  CHECK(slots[1].name == "cuda:2,3");
  recipe.devices.devices = {DeviceRequest::Kind::count, 3, {}};
  CHECK(device_slots(recipe, facts, {}).size() == 1);
  CHECK_THAT(refusal([&] { device_slots(recipe, facts, 2); }),
             StartsWith("2: parallel = 2 trials with 3 CUDA devices each need 6, and there are 4: "));
}
