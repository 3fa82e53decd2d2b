// Meshes that "auto" chooses: when it considers them, what it chooses and says, and what the resolved recipe contains.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/config/config.hpp"
#include "runner/models/models.hpp"
#include "runner/selection/mesh_estimate.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/mesh_search.hpp"
#include "runner/selection/what_if.hpp"
#include "tests/selection/small_plans.hpp"
#include "tests/selection/table_clock.hpp"

using namespace runner;

namespace {

const DeviceKind& h100() { return *find_device_kind("h100-80g"); }

Recipe llama(int64_t dim, int64_t hidden, int64_t layers, int64_t heads, int64_t batch) {
  Recipe recipe;
  recipe.model.name = "llama";
  recipe.model.dim = dim;
  recipe.model.hidden_dim = hidden;
  recipe.model.n_layers = layers;
  recipe.model.n_heads = heads;
  recipe.model.n_kv_heads = 8;
  recipe.model.max_seq_len = 8192;
  recipe.data.format = "text";
  recipe.data.train = {"a.txt"};
  recipe.train.max_steps = 10;
  recipe.precision.mode = "bf16-mixed";
  recipe.strategy.name = "auto";
  recipe.train.global_batch_size = batch;
  return recipe;
}
Recipe llama_70b(int64_t batch) { return llama(8192, 28672, 80, 64, batch); }
Recipe llama_405b(int64_t batch) { return llama(16384, 53248, 126, 128, batch); }
constexpr int64_t llama_vocab = 128256;

Plan plan_on(const Recipe& recipe, int devices, const StepClock& clock) {
  return make_plan(recipe, topology_of(h100(), 8, devices / 8), llama_vocab, clock);
}

bool has_mesh(const Choice& choice) {
  return std::ranges::any_of(choice.candidates, [](const Candidate& one) { return one.mesh.has_value(); });
}

/// A small model whose embedding and head are so large that no rank can gather them within the limit.
Recipe wide_vocabulary(int64_t limit) {
  auto recipe = small_recipe();
  recipe.data.train = {"a.txt"};
  recipe.model.vocab_size = 20000;
  recipe.model.dim = 64;
  recipe.strategy.name = "auto";
  recipe.train.global_batch_size = 8;
  recipe.devices.memory_limit = limit;
  return recipe;
}

int64_t least_bytes(const Choice& choice, bool with_mesh) {
  int64_t least = INT64_MAX;
  for (const auto& one : choice.candidates)
    if (one.refused.empty() && one.mesh.has_value() == with_mesh) least = std::min(least, one.bytes);
  return least;
}

}  // namespace

TEST_CASE("a model of 405B parameters gets a mesh on 16384 devices", "[meshes]") {
  // One sequence for each data rank would be 16384 sequences.
  const auto plan = plan_on(llama_405b(2048), 16384, table_clock("h100-80g"));
  const auto& chosen = plan.choice.plan();
  REQUIRE(chosen.mesh);
  CHECK(chosen.fits);
  CHECK(plan.memory_bytes() < h100().memory_bytes);
  CHECK(plan.job.world_size() == 16384);
  CHECK(plan.job.mesh.size(Axis::tensor) <= 8);
  CHECK(plan.job.micro_batch_size * plan.job.accumulation * plan.job.data_ranks() == 2048);
  CHECK(plan.rule == rule_book().mesh.rule);
  CHECK(plan.reason.find("cannot run: train.global_batch_size = 2048 cannot be divided among 16384 data ranks") !=
        std::string::npos);
  CHECK(plan.reason.find("exposed traffic takes") != std::string::npos);
  // The other meshes are not faster.
  int meshes = 0;
  for (const auto& other : plan.choice.candidates) {
    if (!other.mesh) continue;
    ++meshes;
    CHECK(*other.step_seconds / other.sequences() >= *chosen.step_seconds / chosen.sequences());
  }
  CHECK(meshes == 3);
}

TEST_CASE("the resolved recipe has the mesh that was chosen, and workers get the same parts from it", "[meshes]") {
  const auto plan = plan_on(llama_405b(2048), 16384, table_clock("h100-80g"));
  const auto resolved = parse_recipe(print_recipe(plan.recipe), "resolved.toml");
  CHECK(resolved.devices.mesh == plan.choice.plan().mesh->sizes);
  CHECK(plan.recipe.origin("devices.mesh").kind == Origin::Kind::decided);
  auto topology = topology_of(h100(), 8, 2048);
  topology.sizes = *resolved.devices.mesh;
  const auto mesh = topology.mesh();
  const auto whole = std::make_shared<ModelSpec>(make_spec(resolved, llama_vocab, 8192));
  const auto part = part_of_rank(resolved, whole, mesh);
  CHECK(part->parameter_count() == plan.choice.plan().part->parameter_count());
  CHECK(make_job(resolved, *part, topology).mesh == plan.job.mesh);
  if (plan.pipeline) CHECK(std::get<StageBlocks>(*resolved.strategy.stages) == plan.pipeline->blocks);
}

TEST_CASE("the documented rules stay for models that are not large", "[meshes]") {
  const auto plan = plan_on(llama(4096, 14336, 32, 32, 512), 64, table_clock("h100-80g"));
  CHECK(!has_mesh(plan.choice));
  CHECK(plan.entry->name == "fsdp");
  auto small_batch = llama(4096, 14336, 32, 32, 32);
  CHECK(refusal(small_batch, topology_of(h100(), 8, 8), llama_vocab) ==
        "global_batch_size = 32 cannot be divided among 64 data-parallel ranks");
}

TEST_CASE("the data ranks of a mesh divide the global batch", "[meshes]") {
  // Of 24 devices: 3, 6, 12 or 24 data ranks cannot.
  const auto plan = make_plan(llama_70b(512), topology_of(h100(), 8, 3), llama_vocab, table_clock("h100-80g"));
  int meshes = 0;
  for (const auto& candidate : plan.choice.candidates) {
    if (!candidate.mesh) continue;
    ++meshes;
    CHECK(512 % candidate.job.data_ranks() == 0);
    CHECK(candidate.sequences() == 512);
  }
  CHECK(meshes > 0);
}

TEST_CASE("a recipe that says something about the mesh keeps it", "[meshes]") {
  auto recipe = llama_70b(512);
  recipe.devices.mesh = MeshSizes{.tensor = 2};
  CHECK(!has_mesh(plan_on(recipe, 64, table_clock("h100-80g")).choice));
  Topology open = topology_of(h100(), 8, 8);
  CHECK(mesh_is_open(llama_70b(512), open));
  CHECK(!mesh_is_open(llama_70b(512), topology_of(h100(), 1, 1)));
  recipe = llama_70b(512);
  recipe.strategy.stages = StageBlocks{1, 2};
  CHECK(!mesh_is_open(recipe, open));
  recipe = llama_70b(512);
  recipe.model.name = "mlp";
  CHECK(!mesh_is_open(recipe, open));
}

TEST_CASE("a large model gets a mesh if it is faster by more than the error of predicted times", "[meshes]") {
  const auto choose = [](double gain) {
    auto clock = table_clock("h100-80g");
    clock.error = [](const Job&, const StepTime&) { return 0.25; };
    clock.step_time = [gain](const Candidate& candidate) -> std::optional<StepTime> {
      return candidate.sequences() / (candidate.mesh ? 1 + gain : 1);
    };
    return plan_on(llama_70b(512), 64, clock);
  };
  const auto slight = choose(0.2), clear = choose(0.3);
  CHECK(!slight.choice.plan().mesh);
  CHECK(has_mesh(slight.choice));
  REQUIRE(clear.choice.plan().mesh);
  CHECK(clear.reason.find(" is predicted to be 30 % faster than fsdp FULL_SHARD, which is the documented choice (") !=
        std::string::npos);
  CHECK(clear.reason.find("the error of a predicted time is 25 %") != std::string::npos);
  CHECK(clear.choice.source == rule_book().mesh.source);
}

TEST_CASE("a small model gets a mesh if nothing else fits", "[meshes]") {
  const auto free = make_plan(wide_vocabulary(int64_t{1} << 40), cpus(4), {}, StepClock());
  CHECK(!has_mesh(free.choice));
  // The least memory of any form, and a little less.
  auto smallest = wide_vocabulary(int64_t{1} << 40);
  smallest.selection.policy = "smallest";
  const auto least = least_bytes(make_plan(smallest, cpus(4), {}, StepClock()).choice, /*with_mesh=*/false);
  const auto plan = make_plan(wide_vocabulary(least - 1), cpus(4), {}, StepClock());
  REQUIRE(plan.choice.plan().mesh);
  CHECK(plan.choice.plan().bytes < least);
  CHECK(plan.rule == rule_book().mesh.rule);
  CHECK(plan.reason.find("and the limit is devices.memory_limit = ") != std::string::npos);
  const auto resolved = parse_recipe(print_recipe(plan.recipe), "resolved.toml");
  CHECK(resolved.devices.mesh == plan.choice.plan().mesh->sizes);

  smallest.devices.memory_limit = least - 1;
  const auto small = make_plan(smallest, cpus(4), {}, StepClock());
  REQUIRE(small.choice.fits());
  REQUIRE(small.choice.plan().mesh);
  CHECK(small.rule == rule_book().mesh.rule);
  CHECK(small.choice.plan().bytes == least_bytes(small.choice, /*with_mesh=*/true));
  CHECK(small.reason.find("policy \"smallest\": ") == 0);
  CHECK(small.reason.find(" a rank; nothing fits without a mesh") != std::string::npos);
}

/// Compares the estimate for a mesh with its plan.
void check_estimate(const SelectionRequest& request, const MeshTrial& trial) {
  const auto clock = table_clock("h100-80g");
  Recipe recipe = request.recipe;
  recipe.devices.mesh = trial.sizes();
  if (trial.virtual_stages > 1) recipe.strategy.virtual_stages = trial.virtual_stages;
  auto on_mesh = request.topology;
  on_mesh.sizes = trial.sizes();
  const auto& form = rule_book().form("full_shard");
  MeshEstimate estimate(request, form, trial.tensor, trial.context);
  Candidate exact =
      CandidateSearch(recipe, *estimate.part(), on_mesh, nlohmann::json::object()).at(form, trial.batch, trial.every);
  REQUIRE(exact.refused.empty());
  set_time(exact, clock);
  const double seconds = *estimate.seconds(trial, *clock.rates(exact.job)) / *exact.step_seconds;
  const double bytes = static_cast<double>(estimate.memory(trial)) / static_cast<double>(exact.bytes);
  INFO(to_text(exact.job.mesh) << ": time " << seconds << ", memory " << bytes << " of the plan");
  CHECK(std::abs(seconds - 1) < 0.15);
  CHECK(std::abs(bytes - 1) < 0.15);
  // Over slow links, blocks wait for the tensor axis most of the time.
  auto slow = *clock.rates(exact.job);
  slow.link_bandwidth /= 16;
  const double slow_seconds = *estimate.seconds(trial, slow) / step_time(step_load(exact).value(), slow)->total();
  INFO("over slow links: time " << slow_seconds);
  CHECK(std::abs(slow_seconds - 1) < 0.08);
}

TEST_CASE("estimates of meshes are near their plans", "[meshes]") {
  const SelectionRequest request{.recipe = llama_70b(1024),
                                 .model = std::make_shared<ModelSpec>(make_spec(llama_70b(1024), llama_vocab, 8192)),
                                 .topology = topology_of(h100(), 8, 128)};
  check_estimate(request,
                 {.tensor = 8, .pipeline = 4, .data = 32, .batch = {.micro_batch_size = 1, .accumulation = 32}});
  check_estimate(
      request,
      {.tensor = 8, .pipeline = 4, .data = 32, .batch = {.micro_batch_size = 2, .accumulation = 16}, .every = 1});
  check_estimate(request, {.tensor = 4,
                           .pipeline = 8,
                           .data = 32,
                           .virtual_stages = 2,
                           .batch = {.micro_batch_size = 1, .accumulation = 32},
                           .every = 2});
  check_estimate(
      request,
      {.tensor = 8, .pipeline = 1, .data = 128, .batch = {.micro_batch_size = 1, .accumulation = 8}, .every = 1});
}

namespace {

/// A batch of so many rows of 131,072 tokens.
Recipe with_long_rows(Recipe recipe, int64_t batch) {
  recipe.model.max_seq_len = 131072;
  recipe.train.global_batch_size = batch;
  return recipe;
}

}  // namespace

TEST_CASE("estimates of meshes with a context axis are near their plans", "[meshes]") {
  const auto recipe = with_long_rows(llama_70b(1), 64);
  const SelectionRequest request{.recipe = recipe,
                                 .model = std::make_shared<ModelSpec>(make_spec(recipe, llama_vocab, 131072)),
                                 .topology = topology_of(h100(), 8, 128)};
  check_estimate(request, {.tensor = 8,
                           .context = 16,
                           .pipeline = 1,
                           .data = 8,
                           .batch = {.micro_batch_size = 1, .accumulation = 8},
                           .every = 1});
  check_estimate(request, {.tensor = 8,
                           .context = 4,
                           .pipeline = 4,
                           .data = 8,
                           .batch = {.micro_batch_size = 1, .accumulation = 8},
                           .every = 1});
}

TEST_CASE("a context axis is considered for long rows only", "[meshes]") {
  const auto of_context = [](const Plan& plan) { return plan.choice.plan().job.mesh.size(Axis::context); };
  // 16 rows cannot be divided among 64 data ranks, and a rank cannot keep the activations of one.
  const auto plan = plan_on(with_long_rows(llama(4096, 14336, 32, 32, 1), 16), 64, table_clock("h100-80g"));
  CHECK(plan.choice.plan().fits);
  CHECK(of_context(plan) > 1);
  CHECK(plan.recipe.devices.mesh->context == of_context(plan));
  CHECK(plan.job.model->seq_len * of_context(plan) == 131072);
  CHECK(plan.rule == rule_book().mesh.rule);
  // A rank has at least 8,192 tokens.
  for (const auto& candidate : plan.choice.candidates)
    if (candidate.mesh) CHECK(candidate.job.mesh.size(Axis::context) <= 16);
  for (const auto& candidate : plan_on(llama_70b(512), 64, table_clock("h100-80g")).choice.candidates)
    CHECK(candidate.job.mesh.size(Axis::context) == 1);

  const auto resolved = parse_recipe(print_recipe(plan.recipe), "resolved.toml");
  CHECK(resolved.devices.mesh == plan.choice.plan().mesh->sizes);
  CHECK(make_plan(resolved, topology_of(h100(), 8, 8), llama_vocab, table_clock("h100-80g")).memory_bytes() ==
        plan.memory_bytes());
}

TEST_CASE("the load of a step keeps what its axes add when the ledger stores it", "[meshes]") {
  auto recipe = llama_70b(1024);
  recipe.strategy.name = "fsdp";
  recipe.devices.mesh = MeshSizes{.pipeline = 4, .data = 32, .tensor = 8};
  const auto clock = table_clock("h100-80g");
  const auto plan = plan_on(recipe, 1024, clock);
  REQUIRE(plan.load);
  const Rates& rates = *clock.rates(plan.job);
  const auto time = step_time(*plan.load, rates),
             stored = step_time(StepLoad::from_json(plan.load->to_json()).value(), rates);
  CHECK(time->total() == stored->total());
  REQUIRE(time->axes.size() == 3);
  double exposed = 0;
  for (const auto& axis : time->axes) {
    CHECK(axis.exposed > 0);
    CHECK(axis.wire_bytes > 0);
    exposed += axis.exposed;
  }
  CHECK(std::abs(exposed / time->parts[communication_part] - 1) < 1e-9);
  // Blocks wait for the collectives of the tensor axis, and for other stages with it; data and transfers are mostly hidden.
  const auto& [tensor, data, pipeline] = std::tie(time->axes[0], time->axes[1], time->axes[2]);
  CHECK(tensor.axis == Axis::tensor);
  CHECK(tensor.exposed > tensor.seconds);
  CHECK(data.axis == Axis::data);
  CHECK(data.exposed < data.seconds);
  CHECK(pipeline.axis == Axis::pipeline);
  CHECK(pipeline.exposed < pipeline.seconds);
}
