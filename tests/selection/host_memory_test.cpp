// Host memory of runs on devices: its amount in a plan, and whether the plan fits.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>

#include "runner/selection/candidate.hpp"
#include "runner/selection/plan.hpp"
#include "strategies/zero/entry.hpp"

using namespace runner;

namespace {

Recipe recipe(const std::string& strategy, nlohmann::json options = nlohmann::json::object()) {
  Recipe r;
  r.model.name = "gpt";
  r.model.n_layers = 2;
  r.model.dim = 96;
  r.model.n_heads = 4;
  r.model.max_seq_len = 32;
  r.data.format = "text";
  r.train.max_steps = 10;
  r.train.micro_batch_size = 1;
  r.precision.mode = "bf16-mixed";
  r.strategy.name = strategy;
  r.strategy.options = std::move(options);
  return r;
}

Topology gpus(int64_t host_bytes = 0) {
  auto topology = topology_of(*find_device_kind("h100-80g"), 2, 1);
  topology.host_memory_bytes = host_bytes;
  return topology;
}

bool noted(const Plan& plan, const std::string& text) {
  return std::any_of(plan.notes.begin(), plan.notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("the copy for an asynchronous checkpoint is counted in the host memory of a plan for GPUs") {
  for (std::string strategy : {"ddp", "fsdp", "zero"}) {
    auto r = recipe(strategy);
    auto without = make_plan(r, gpus(), 256);
    CHECK(without.host_bytes() == 0);
    r.checkpoint.every_n_steps = 5;
    auto with = make_plan(r, gpus(), 256);
    int64_t state = with.model->parameter_count() * 12;
    CHECK(with.host_bytes() == state / 2);
    CHECK(with.memory_bytes() == without.memory_bytes());
    CHECK(with.to_json().at("host_bytes_per_rank") == state / 2);
    r.checkpoint.async = false;  // written from the state itself, without a copy
    CHECK(make_plan(r, gpus(), 256).host_bytes() == 0);
  }
}

TEST_CASE("the best checkpoint is kept if there are validation data and a checkpoint is small") {
  auto r = recipe("ddp");
  const auto decided = [&](const Topology& devices) {
    const auto& made = make_plan(r, devices, 256).recipe;
    return std::pair(made.checkpoint.save_top_k.value(), made.origin("checkpoint.save_top_k").note);
  };
  CHECK(decided(gpus()) == std::pair<int64_t, std::string>(0, "there are no validation data"));
  r.data.validation_fraction = 0.1;
  const auto plan = make_plan(r, gpus(), 256);
  const int64_t state = plan.model->parameter_count() * 12;
  CHECK(decided(gpus()).first == 1);
  CHECK_FALSE(plan.recipe.checkpoint.async);
  CHECK(plan.host_bytes() == 0);
  r.checkpoint.every_n_steps = 5;
  CHECK(make_plan(r, gpus(), 256).recipe.checkpoint.async);
  r.checkpoint.every_n_steps.reset();
  r.devices.mesh = MeshSizes{.tensor = 2};
  const auto divided = make_plan(r, gpus(), 256);
  CHECK(checkpoint_bytes_on_disk(divided.job, *divided.model) == state);
  r.model.n_layers = 1000;
  CHECK(decided(gpus()).first == 0);
  CHECK(decided(gpus()).second.find(" GiB, more than 1.00 GiB") != std::string::npos);
}

TEST_CASE("the copy for a checkpoint of adapters has what they train, and not their base") {
  for (const bool whole : {false, true}) {
    auto r = recipe("fsdp", {{"state_dict_type", whole ? "full" : "sharded"}});
    r.fine_tune.method = "lora";
    r.model.init_from = "base";
    r.checkpoint.every_n_steps = 5;
    const auto plan = make_plan(r, gpus(), 256);
    int64_t trained = 0;
    for (const auto* parameter : plan.model->parameters()) trained += parameter->trainable ? parameter->numel() : 0;
    REQUIRE(trained * 8 < plan.model->parameter_count());
    CHECK(plan.host_bytes() == trained * 12 / 2);
    CHECK(checkpoint_bytes(plan.job, 4) == trained * 12);
    r.model.init_from.reset();  // without a base the frozen parameters are random, so checkpoints have them
    CHECK(checkpoint_bytes(make_plan(r, gpus(), 256).job, 4) == trained * 8 + plan.model->parameter_count() * 4);
  }
}

TEST_CASE("a checkpoint's copy that does not fit into host memory gives a note in the plan") {
  auto r = recipe("fsdp");
  r.checkpoint.every_n_steps = 5;
  int64_t state = make_plan(r, gpus(), 256).model->parameter_count() * 12;
  CHECK(noted(make_plan(r, gpus(state / 2), 256), "of host memory: it may run out of memory"));
  CHECK(!noted(make_plan(r, gpus(state * 2), 256), "it may run out of memory"));
}

TEST_CASE("a checkpoint with full tensors needs the complete state on one rank, async or not") {
  for (bool async : {false, true}) {
    auto r = recipe("fsdp", {{"state_dict_type", "full"}});
    r.checkpoint.async = async;
    auto plan = make_plan(r, gpus(), 256);
    CHECK(plan.host_bytes() == plan.model->parameter_count() * 12 / 2);  // per rank, of two
  }
}

TEST_CASE("pinned memory is rounded up to powers of two, as the allocator does") {
  auto r = recipe("zero", {{"stage", 3}, {"offload_optimizer", true}, {"offload_parameters", true}});
  auto pinned = make_plan(r, gpus(), 256);
  r.strategy.options["pin_memory"] = false;
  auto pageable = make_plan(r, gpus(), 256);
  ParallelPlan plan = zero_plan(pinned.job);
  auto ceil = [](int64_t bytes) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); };
  int64_t more = 0;
  std::vector<int64_t> casts;
  for (const auto& unit : plan.units) {
    int64_t shard = make_flat_layout(pinned.model->parameters(), unit.slots, plan.shards()).shard;
    auto add = [&](int64_t bytes) { more += ceil(bytes) - bytes; };
    add(4 * shard);                        // master parameters
    add(bytes_of(plan.gradient) * shard);  // gradients for the update
    if (plan.written_apart(unit)) add(2 * shard);
    auto places = plan.places(unit);
    if (places.sent == ShardPlaces::Sent::memory && unit.tier == Tier::host) add(2 * shard);
    if (places.sent == ShardPlaces::Sent::master) casts.push_back(ceil(2 * shard));
  }
  std::sort(casts.begin(), casts.end());
  casts.erase(std::unique(casts.begin(), casts.end()), casts.end());
  for (int64_t cast : casts) more += cast;
  CHECK(more > 0);
  CHECK(pinned.host_bytes() - pageable.host_bytes() == more);
}

TEST_CASE("an update beside the next forward casts only the gradients of trained units") {
  auto r = recipe("zero", {{"stage", 3}, {"offload_optimizer", true}, {"pin_memory", false}});
  r.model.tie_embeddings = false;
  r.model.frozen = {"embedding.*", "head.*"};
  r.train.accumulate_grad_batches = AccumulationSchedule{{0, 1}};
  // AdamW has two numbers of state for each parameter. Its kernel reads gradients of any dtype, so its only copy is that for the
  // norm, of one part at a time. SGD has no state, and casts the gradients of one unit at a time.
  r.optimizer.name = "adamw";
  const auto adamw = make_plan(r, gpus(), 8192);
  r.optimizer.name = "sgd";
  r.optimizer.momentum = 0;
  const auto sgd = make_plan(r, gpus(), 8192);
  const ParallelPlan plan = zero_plan(sgd.job);
  REQUIRE(plan.updates_beside());
  REQUIRE(plan.gradient != plan.master);
  int64_t trained = 0, unit_most = 0, part_most = 0, frozen_most = 0;
  for (const auto& unit : plan.units) {
    const auto layout = layout_of(*sgd.model, plan, unit);
    if (unit.frozen) {
      frozen_most = std::max(frozen_most, layout.shard);
      continue;
    }
    trained += layout.shard;
    unit_most = std::max(unit_most, layout.shard);
    for (const auto& item : layout.items) part_most = std::max(part_most, std::min(item.numel, layout.shard));
  }
  CHECK(frozen_most > unit_most);
  CHECK(sgd.host_bytes() - adamw.host_bytes() == 4 * (unit_most - part_most) - 8 * trained);
}
