// Pipelines in recipes: every spelling, the stages that follow, what is refused and noted, and what a plan says.
#include <catch2/catch_test_macros.hpp>

#include "runner/models/models.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/pipeline_plan.hpp"
#include "runner/selection/step_time.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "tests/selection/recipe_place.hpp"
#include "tests/selection/small_plans.hpp"

using namespace runner;

namespace {

/// Four layers, 16 sequences in 8 micro-batches.
Recipe pipelined(int64_t ranks, const std::string& strategy = "single") {
  auto recipe = small_recipe();
  recipe.model.n_layers = 4;
  recipe.strategy.name = strategy;
  recipe.data.train = {"a.txt"};
  recipe.devices.mesh = MeshSizes{.pipeline = ranks};
  recipe.train.micro_batch_size = 2;
  recipe.train.accumulate_grad_batches = AccumulationSchedule{{0, 8}};
  return recipe;
}

std::vector<int> counts(const Plan& plan) { return std::get<std::vector<int>>(*plan.recipe.strategy.stages); }

/// The recipe of a plan as a worker reads it.
Recipe read_back(const Plan& plan) { return parse_recipe(print_recipe(plan.recipe), "resolved.toml"); }

bool notes_contain(const Plan& plan, const std::string& text) {
  return std::ranges::any_of(plan.notes, [&](const auto& note) { return note.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("the default micro-batch leaves enough micro-batches for the ranks of a pipeline") {
  const auto sizes = [](int ranks, std::optional<int64_t> sequences, std::optional<int64_t> accumulation = {},
                        std::optional<int64_t> size = {}) {
    auto recipe = pipelined(ranks);
    recipe.train.micro_batch_size = size;
    recipe.train.global_batch_size = sequences;
    recipe.train.accumulate_grad_batches.reset();
    if (accumulation) recipe.train.accumulate_grad_batches = AccumulationSchedule{{0, *accumulation}};
    const auto plan = make_plan(recipe, cpus(ranks), 256);
    return std::pair(*plan.recipe.train.micro_batch_size, plan.pipeline ? plan.pipeline->shape.micro_batches : 1);
  };
  CHECK(sizes(2, 64) == std::pair<int64_t, int>(8, 8));
  CHECK(sizes(2, 16) == std::pair<int64_t, int>(2, 8));
  CHECK(sizes(2, 8) == std::pair<int64_t, int>(1, 8));
  CHECK(sizes(2, 6) == std::pair<int64_t, int>(1, 6));  // fewer than 4 for each rank, but the most
  CHECK(sizes(4, 48) == std::pair<int64_t, int>(3, 16));
  CHECK(sizes(1, 16) == std::pair<int64_t, int>(8, 1));
  CHECK(sizes(2, {}) == std::pair<int64_t, int>(1, 8));
  CHECK(sizes(1, {}) == std::pair<int64_t, int>(8, 1));
  CHECK(sizes(2, 64, {}, Recipe::automatic) == std::pair<int64_t, int>(8, 8));
  CHECK(sizes(2, {}, {}, Recipe::automatic).second == 8);
  CHECK(sizes(2, {}, 2, Recipe::automatic).second == 2);        // the recipe's own
  CHECK(sizes(2, 16, {}, 8) == std::pair<int64_t, int>(8, 2));  // the recipe's own
}

TEST_CASE("a resolved recipe has the blocks of each stage, and workers get the same stages from it") {
  const auto plan = make_plan(pipelined(2), cpus(2), 256);
  CHECK(plan.recipe.devices.mesh == MeshSizes{.pipeline = 2});
  REQUIRE(plan.pipeline);
  CHECK(plan.pipeline->shape.schedule == PipelineSchedule::one_f_one_b);
  CHECK(plan.pipeline->shape.micro_batches == 8);
  CHECK(counts(plan).size() == 2);
  CHECK(counts(plan)[0] + counts(plan)[1] == 10);  // embedding, two blocks of each layer, head
  CHECK(plan.recipe.origin("strategy.stages").kind == Origin::Kind::decided);

  const auto resolved = read_back(plan);
  const Mesh mesh(2, {{.axis = Axis::pipeline, .size = 2}});
  const auto whole = make_spec(resolved, 256, 32);
  for (int rank = 0; rank < 2; ++rank) {
    const auto stage = stage_of_rank(resolved, whole, mesh, rank);
    const auto& planned = *plan.pipeline->models[static_cast<size_t>(rank)];
    CHECK(stage->stage == planned.stage);
    CHECK(stage->parameter_count() == planned.parameter_count());
  }
  CHECK(plan.to_json().at("parameters") == whole.parameter_count());
}

TEST_CASE("the slowest stage is as fast as possible, with embedding and head") {
  auto recipe = pipelined(2);
  recipe.model.vocab_size = 256;
  const auto small = counts(make_plan(recipe, cpus(2), {}));
  recipe.model.vocab_size = 20000;  // the head is now most of the work
  const auto large = counts(make_plan(recipe, cpus(2), {}));
  CHECK(small[0] < large[0]);
  CHECK(large[1] == 1);
  // Recomputed layers take a forward more, and the head does not.
  recipe.model.vocab_size = 1200;
  const auto plain = counts(make_plan(recipe, cpus(2), {}));
  recipe.activation_checkpointing.mode = "all";
  const auto again = counts(make_plan(recipe, cpus(2), {}));
  CHECK(again[0] < plain[0]);
}

TEST_CASE("stages that would not fit the memory get fewer blocks") {
  auto recipe = pipelined(2);
  recipe.model.vocab_size = 256;
  recipe.model.max_seq_len = 128;
  recipe.train.micro_batch_size = 8;  // the first rank keeps the activations of two micro-batches
  const auto free = make_plan(recipe, cpus(2), {});
  REQUIRE(counts(free) == std::vector{5, 5});
  REQUIRE(free.pipeline->largest == 0);
  const ModelSpec whole = make_spec(free.recipe, 256, 128);
  recipe = free.recipe;
  recipe.strategy.stages = {};
  auto topology = cpus(2);
  topology.sizes = {.pipeline = 2};
  const Job job = make_job(recipe, whole, topology);
  // A little below what the first rank needs: some of its blocks move to the other one.
  PipelinePlan limited = *free.pipeline;
  for (int percent = 99; percent > 50 && limited.blocks == free.pipeline->blocks; --percent)
    limited =
        plan_pipeline(recipe, job, *free.entry, {.device = free.memory.total() * percent / 100, .reason = "a test"});
  CHECK(limited.blocks[0] < 5);
  CHECK(limited.memory.of(0).total() < free.memory.total());
  CHECK(limited.division == "the slowest stage is as fast as possible, among divisions that fit the memory");
  CHECK(plan_pipeline(recipe, job, *free.entry, {.device = 1, .reason = "a test"}).blocks == free.pipeline->blocks);
}

TEST_CASE("stages by hand are numbers of blocks or first blocks") {
  auto recipe = pipelined(2);
  recipe.strategy.stages = std::vector{3, 7};
  CHECK(counts(make_plan(recipe, cpus(2), 256)) == std::vector{3, 7});
  recipe.strategy.stages = std::vector<std::string>{"embedding", "blocks.1"};
  CHECK(counts(make_plan(recipe, cpus(2), 256)) == std::vector{3, 7});
  recipe.strategy.stages = std::vector{3, 3, 4};
  CHECK(refusal(recipe, cpus(2)) == "3 stages are given, and the pipeline has 2");
  recipe.strategy.stages = std::vector{3, 6};
  CHECK(refusal(recipe, cpus(2)) == "the stages have 9 blocks together, and the model has 10");
  CHECK(RecipePlace("[strategy]\nname = \"single\"\nstages = \"balanced\"\n").load().strategy.stages == std::nullopt);
  CHECK(std::get<0>(*RecipePlace("[strategy]\nname = \"single\"\nstages = [2, 4]\n").load().strategy.stages) ==
        std::vector{2, 4});
}

TEST_CASE("all spellings mean the same pipeline") {
  const auto planned = [](const std::string& strategy, const std::string& tail = "", int ranks = 2) {
    auto recipe = RecipePlace("[strategy]\n" + strategy, tail).load();
    const auto plan = make_plan(recipe, cpus(ranks), 256);
    CHECK(!plan.recipe.strategy.pipeline_parallel_size);
    return to_text(plan.job.mesh) + ", " + name_of(plan.job.pipeline.schedule) + ", " +
           std::to_string(plan.job.pipeline.virtual_stages);
  };
  const std::string two = "pipeline 2, 1f1b, 1";
  CHECK(planned("name = \"single\"\n", "[devices]\nmesh = { pipeline = 2 }\n") == two);
  for (const char* name : {"pipeline_parallel_size", "pipeline_model_parallel_size", "pipeline_parallel_degree", "pp",
                           "pp_size", "num_stages"})
    CHECK(planned(std::string("name = \"single\"\n") + name + " = 2\n") == two);
  CHECK(planned("name = \"pipeline\"\n") == two);
  CHECK(planned("name = \"pp\"\n") == two);
  CHECK(planned("name = \"pp\"\ntensor_parallel_size = 2\n", "", 4) == "pipeline 2 x tensor 2, 1f1b, 1");
  CHECK(planned("name = \"pp\"\npp_size = 2\n", "", 4) == "pipeline 2 x data 2, 1f1b, 1");
  CHECK(planned("name = \"pp\"\ndp = 2\n", "", 4) == "pipeline 2 x data 2, 1f1b, 1");
  CHECK(planned("name = \"single\"\npp = 2\npp_engine = \"afab\"\n") == "pipeline 2, gpipe, 1");
  CHECK(planned("name = \"single\"\npp = 2\npipeline_parallel_schedule = \"GPipe\"\n") == "pipeline 2, gpipe, 1");
  const std::string interleaved = "pipeline 2, interleaved_1f1b, 2";
  CHECK(planned("name = \"single\"\npp = 2\nvirtual_stages = 2\n") == interleaved);
  CHECK(planned("name = \"single\"\npp = 2\nnum_virtual_stages_per_pipeline_rank = 2\n"
                "pipeline_parallel_schedule = \"Interleaved1F1B\"\n") == interleaved);
  CHECK(planned("name = \"deepspeed\"\nconfig = { zero_optimization = { stage = 1 }, pipeline = { stages = 2 } }\n") ==
        two);
  const auto recipe = RecipePlace("[strategy]\nname = \"single\"\npp = 2\npartition_method = \"uniform\"\n").load();
  CHECK(recipe.notes.size() == 2);
}

TEST_CASE("what a pipeline cannot do is refused at its key") {
  auto recipe = pipelined(2);
  recipe.strategy.pipeline_schedule = "gpipe";
  recipe.strategy.virtual_stages = 2;
  CHECK(refusal(recipe, cpus(2)) == "gpipe has 1 virtual stage a rank, not 2; interleaved_1f1b can have 2");
  recipe.strategy.virtual_stages = {};
  recipe.strategy.pipeline_schedule = "zb_h1";
  CHECK(refusal(recipe, cpus(2)).empty());
  CHECK(refusal(pipelined(11), cpus(11)) ==
        "10 blocks cannot be divided into 11 stages; at most 10 stages are possible");
  CHECK(RecipePlace("[strategy]\nname = \"single\"\npipeline_parallel_size = 3\n").wrong().empty());
  recipe = pipelined(2, "deepspeed_stage_2");
  CHECK(refusal(recipe, cpus(4)).starts_with("gradients cannot be reduced after each micro-batch in a pipeline"));
  recipe = pipelined(2, "lua:topk");
  CHECK(refusal(recipe, cpus(4)).starts_with("a comm hook or a strategy in Lua reduces gradients of the complete"));
  CHECK(
      mistakes(pipelined(3), cpus(4))[0].message ==
      "the run has 4 ranks, which is no multiple of the 3 of mesh = { pipeline = 3 }; sizes that work, one at a time: "
      "pipeline = 1, pipeline = 2 or pipeline = 4");
  auto encoder = pipelined(2);
  encoder.model.name = "mlp";
  encoder.data.format = "csv";
  CHECK(refuse_stages(encoder) ==
        "the blocks of mlp cannot be divided into stages: pipelines are for gpt and decoders that predict tokens");
}

TEST_CASE("hooks around a backward are refused in a pipeline, where ranks are at different micro-batches", "[lua]") {
  for (const std::string moment : {"on_before_backward", "on_after_backward", "on_before_optimizer_step"}) {
    RecipePlace place("strategy = {name = \"single\", pipeline_parallel_size = 2}",
                      "[hooks]\nfiles = [\"mine.lua\"]\n");
    place.write("mine.lua", "return {" + moment + " = function(ctx) end}");
    if (moment == "on_before_optimizer_step")
      CHECK_NOTHROW(make_plan(place.load(), cpus(2), 256));
    else
      CHECK(
          refusal(place.load(), cpus(2)) ==
          "hooks with on_before_backward or on_after_backward cannot be combined with a pipeline "
          "(pipeline_parallel_size above 1): its ranks are at different micro-batches, but all ranks take part in each "
          "call of a hook: use on_before_optimizer_step");
  }
}

TEST_CASE("notes say when ranks of a pipeline wait long, and when keys of a pipeline have no effect") {
  auto recipe = pipelined(4);
  CHECK(!notes_contain(make_plan(pipelined(2), cpus(2), 256), "wait for each other"));
  recipe.train.accumulate_grad_batches = AccumulationSchedule{{0, 2}};
  const auto few = make_plan(recipe, cpus(4), 256);
  CHECK(notes_contain(few,
                      "2 micro-batches do not fill a pipeline of 4 ranks, which wait for each other; use 4 or more"));
  CHECK(!notes_contain(few, "the ranks of the pipeline are predicted to wait for each other in "));
  recipe.train.accumulate_grad_batches = AccumulationSchedule{{0, 4}};
  const auto more = make_plan(recipe, cpus(4), 256);
  CHECK(notes_contain(more, "the ranks of the pipeline are predicted to wait for each other in "));
  CHECK(notes_contain(more, "train.accumulate_grad_batches), or with more strategy.virtual_stages"));
  recipe.strategy.virtual_stages = 2;  // its 10 blocks cannot be 12 stages
  const auto most = make_plan(recipe, cpus(4), 256);
  CHECK(notes_contain(most, "the ranks of the pipeline are predicted to wait for each other in "));
  CHECK(!notes_contain(most, "more strategy.virtual_stages"));
  recipe = RecipePlace("[strategy]\nname = \"single\"\nvirtual_stages = 2\nstages = [2, 4]\n").load();
  const auto none = make_plan(recipe, cpus(1), 256);
  CHECK(notes_contain(none, "`virtual_stages`: nothing to do here: it needs a pipeline axis with several ranks"));
  CHECK(notes_contain(none, "`stages`: nothing to do here: it needs a pipeline axis with several ranks"));
  CHECK(!none.pipeline);
}

TEST_CASE("a plan has the memory of the rank that needs most, and the time of the slowest one with the waiting") {
  const auto plan = make_plan(pipelined(2), cpus(2), 256);
  const auto& pipeline = *plan.pipeline;
  CHECK(plan.memory.total() == std::max(pipeline.memory.of(0).total(), pipeline.memory.of(1).total()));
  CHECK(pipeline.memory.of(0).total() != pipeline.memory.of(1).total());
  CHECK(plan.job.model == pipeline.models[static_cast<size_t>(pipeline.largest)].get());

  // With equal stages the formula of 1f1b: m + (p - 1) / v times the slowest stage.
  auto equal = pipeline;
  equal.times = {StageTime(), StageTime()};
  equal.length = 9 * 3.0;
  CHECK(equal.stretch() == 9.0 / 8);

  const auto work = [](const Plan& one) { return one.load->work[static_cast<size_t>(Work::product_flops)]; };
  auto one = pipelined(1);
  const double whole = work(make_plan(one, cpus(1), 256)), half = work(plan);
  CHECK(half > whole / 2);
  CHECK(half < 0.8 * whole);
}

TEST_CASE("the memory of many micro-batches is that of a step with all of them") {
  for (const bool interleaved : {false, true}) {
    auto recipe = pipelined(2);
    if (interleaved) recipe.strategy.virtual_stages = 2;
    recipe.train.accumulate_grad_batches = AccumulationSchedule{{0, 64}};
    const auto plan = make_plan(recipe, cpus(2), 256);
    for (int rank = 0; rank < 2; ++rank)
      CHECK(plan.pipeline->memory.of(rank).total() ==
            plan.entry->memory(plan.pipeline->job_of_rank(plan.job, rank)).total());
  }
}

TEST_CASE("transfers between stages take the time of an all_gather of two ranks") {
  const auto plan = make_plan(pipelined(2), cpus(2), 256);
  // Eight activations one way and eight gradients back, of 2 x 32 tokens and 64 fp32 values.
  const int64_t message = 2 * 32 * 64 * 4;
  std::vector<Traffic> transfers;
  for (const auto& part : plan.traffic)
    if (part.collective == "transfer") transfers.push_back(part);
  REQUIRE(transfers.size() == 2);
  for (const auto& part : transfers) {
    CHECK(part.calls == 8);
    CHECK(part.payload_bytes == 8 * message);
  }
  Rates rates;
  rates.curves[{"all_gather", 2}].points = {{static_cast<double>(message), 0.25}, {4.0 * message, 1.0}};
  CHECK(communication_seconds(transfers, 2, rates) == 16 * 0.25);
}

TEST_CASE("recomputed layers are counted in the whole model") {
  auto recipe = pipelined(2);
  recipe.strategy.stages = std::vector{3, 7};  // layer 0 on the first rank
  recipe.activation_checkpointing.mode = "every";
  recipe.activation_checkpointing.every = 2;
  const auto plan = make_plan(recipe, cpus(2), 256);
  int64_t recomputed = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const auto job = plan.pipeline->job_of_rank(plan.job, rank);
    recomputed += job.model->layers_with(job.recompute);
    CHECK(job.model->layers_with(job.recompute) == (rank == 0 ? 0 : 2));
  }
  CHECK(recomputed == 2);
}

TEST_CASE("auto chooses among strategies that can have a pipeline") {
  auto recipe = pipelined(2, "auto");
  CHECK(make_plan(recipe, cpus(2), 256).entry->name == "single");
  const auto plan = make_plan(recipe, cpus(4), 256);
  CHECK(plan.entry->name == "ddp");
  for (const auto& candidate : plan.choice.candidates)
    if (candidate.refused.empty()) CHECK(candidate.pipeline);
}

TEST_CASE("the rank that needs most memory is found without predicting that of every rank") {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1"})
    for (const int ranks : {2, 3, 4}) {
      auto recipe = pipelined(ranks);
      recipe.model.n_layers = 12;
      recipe.strategy.pipeline_schedule = schedule;
      if (recipe.strategy.pipeline_schedule == "interleaved_1f1b") recipe.strategy.virtual_stages = 2;
      recipe.train.accumulate_grad_batches = AccumulationSchedule{{0, 4 * ranks}};
      INFO(schedule << " on " << ranks << " ranks");
      const auto plan = make_plan(recipe, cpus(ranks), 256);
      int largest = 0;
      for (int rank = 1; rank < ranks; ++rank)
        if (plan.pipeline->memory.of(rank).total() > plan.pipeline->memory.of(largest).total()) largest = rank;
      CHECK(plan.pipeline->largest == largest);
    }
}
