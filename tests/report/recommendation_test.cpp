// Figures of a recommendation that depend on how ranks divide the model.
#include "runner/report/recommendation.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/selection/small_plans.hpp"
#include "tests/selection/table_clock.hpp"

using namespace runner;
using Catch::Matchers::WithinRel;

namespace {

Recommendation recommendation_of(const Plan& plan, double peak_flops = 0) {
  return {.plan = plan,
          .recipe_file = "",
          .devices = "",
          .peak_flops = peak_flops,
          .peak_name = "",
          .times = "",
          .what_if = {},
          .shortfall = "",
          .asked_batch = {},
          .unset = {},
          .read = {}};
}

}  // namespace

TEST_CASE("the utilization counts the model once, however many ranks divide it") {
  constexpr double peak = 1e9;
  StepClock clock;
  clock.step_time = [](const Candidate&) { return std::optional(1.0); };
  struct Row {
    int ranks, tensor;
  };
  for (const auto& [ranks, tensor] : {Row{1, 1}, Row{2, 1}, Row{2, 2}, Row{4, 2}}) {
    INFO(ranks << " ranks, " << tensor << " of them divide the model");
    auto recipe = small_recipe();
    recipe.train.global_batch_size = 16;
    recipe.devices.mesh = MeshSizes{.tensor = tensor};
    const auto plan = make_plan(recipe, cpus(ranks), 256, clock);
    const auto json = recommendation_json(recommendation_of(plan, peak));
    const double tokens = 16 * 32, flops = tokens * plan.model->training_flops_per_token();
    CHECK(plan.model->training_flops_per_token() ==
          make_plan(small_recipe(), cpus(1), 256).model->training_flops_per_token());
    int timed = 0;
    for (const auto& candidate : json.at("candidates")) {
      if (!candidate.contains("mfu")) continue;
      ++timed;
      CHECK_THAT(candidate.at("mfu").get<double>(), WithinRel(flops / (peak * ranks), 1e-12));
      CHECK_THAT(candidate.at("tokens_per_s").get<double>(), WithinRel(tokens, 1e-12));
    }
    CHECK(timed > 0);
  }
}

TEST_CASE("a printed recommendation keeps the mesh") {
  auto recipe = small_recipe();
  recipe.strategy.tensor_parallel_size = 2;
  recipe.strategy.sequence_parallel = false;
  recipe.origins["strategy.tensor_parallel_size"] = {.kind = Origin::Kind::set, .file = "strategy.tp=2"};
  recipe.origins["strategy.sequence_parallel"] = {.kind = Origin::Kind::set,
                                                  .file = "strategy.sequence_parallel=false"};
  const auto plan = make_plan(recipe, cpus(4), 256);
  auto recommendation = recommendation_of(plan);
  recommendation.recipe_file = "small.toml";
  recommendation.read = [&](const std::string&) { return small_recipe(); };
  const auto text = recommendation_toml(recommendation);
  CHECK(text.find("[devices]\nmesh = { tensor = 2 }\n") != std::string::npos);
  CHECK(text.find("sequence_parallel = false\n") != std::string::npos);
  CHECK(text.find("tensor_parallel_size") == std::string::npos);
}

TEST_CASE("a recommendation of a pipeline names the rank that needs most memory, and counts the layers of all ranks") {
  auto recipe = small_recipe();
  recipe.model.n_layers = 4;
  recipe.devices.mesh = MeshSizes{.pipeline = 2};
  recipe.train.micro_batch_size = 2;
  recipe.train.accumulate_grad_batches = AccumulationSchedule{{0, 4}};
  recipe.activation_checkpointing.mode = "all";
  recipe.strategy.virtual_stages = 2;
  recipe.origins["devices.mesh"] = {.kind = Origin::Kind::set, .file = "devices.mesh"};
  const auto plan = make_plan(recipe, cpus(2), 256);
  auto recommendation = recommendation_of(plan);
  const auto text = recommendation_text(recommendation, false, false);
  CHECK(text.find(fmt::format(" on rank {}", plan.pipeline->largest)) != std::string::npos);
  CHECK(
      text.find("pipeline: interleaved_1f1b with 2 virtual stages a rank, 4 micro-batches a step; the slowest stage is "
                "as fast as possible; ranks wait for each other in ") != std::string::npos);
  const auto json = recommendation_json(recommendation);
  CHECK(json.at("candidates").at(0).at("recomputed_blocks") == 4);
  const auto& pipeline = json.at("candidates").at(0).at("pipeline");
  CHECK(pipeline.at("ranks").size() == 2);
  CHECK(pipeline.at("stages").size() == 4);
  CHECK(json.at("chosen").at("schedule").size() == 2 * 4 * 4);  // forward and backward of 4 stages and 4 micro-batches
  CHECK(json.at("parameters") == plan.model->parameter_count());

  recommendation.recipe_file = "small.toml";
  recommendation.read = [&](const std::string&) { return small_recipe(); };
  const auto printed = recommendation_toml(recommendation);
  CHECK(printed.find("mesh = { pipeline = 2 }\n") != std::string::npos);
  CHECK(printed.find("virtual_stages = 2\n") != std::string::npos);
  CHECK(printed.find("stages = [") == std::string::npos);  // they are balanced again
}

TEST_CASE("a recommendation shows the mesh that was chosen, and what each of its axes costs") {
  auto recipe = small_recipe();
  recipe.model.name = "llama";
  recipe.model.dim = 8192;
  recipe.model.n_layers = 80;
  recipe.model.n_heads = 64;
  recipe.model.max_seq_len = 4096;
  recipe.precision.mode = "bf16-mixed";
  recipe.strategy.name = "auto";
  recipe.train.global_batch_size = 64;  // fewer sequences than devices
  const auto plan =
      make_plan(recipe, topology_of(*find_device_kind("h100-80g"), 8, 16), 32000, table_clock("h100-80g"));
  const auto& chosen = plan.choice.plan();
  REQUIRE(chosen.mesh);
  auto recommendation = recommendation_of(plan);
  recommendation.recipe_file = "large.toml";
  recommendation.read = [&](const std::string&) { return small_recipe(); };
  const auto text = recommendation_text(recommendation, false, false);
  CHECK(text.find("large.toml: fsdp FULL_SHARD on " + to_text(plan.job.mesh)) != std::string::npos);
  CHECK(text.find("axis of the mesh") != std::string::npos);
  CHECK(text.find("sent in a step") != std::string::npos);

  const auto json = recommendation_json(recommendation);
  int chosen_ones = 0;
  for (const auto& candidate : json.at("candidates")) {
    if (candidate.at("verdict") != "chosen") continue;
    ++chosen_ones;
    CHECK(candidate.at("mesh").at("tensor") == plan.job.mesh.size(Axis::tensor));
    REQUIRE(candidate.at("traffic_of_axes").size() == chosen.axes.size());
    const auto& first = candidate.at("traffic_of_axes").at(0);
    CHECK(first.at("axis") == "tensor");
    CHECK(first.at("exposed_seconds") == chosen.axes[0].exposed);
    CHECK(first.at("wire_bytes") == chosen.axes[0].wire_bytes);
  }
  CHECK(chosen_ones == 1);
  CHECK(json.at("chosen").at("mesh").at("tensor") == plan.job.mesh.size(Axis::tensor));
  CHECK(json.at("global_batch_size") == 64);

  const auto printed = recommendation_toml(recommendation);
  CHECK(printed.find(fmt::format("tensor = {} }}\n", plan.job.mesh.size(Axis::tensor))) != std::string::npos);
  CHECK(printed.find("name = \"fsdp\"\n") != std::string::npos);
}
