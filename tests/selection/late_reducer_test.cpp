// Notes on comm hooks and algorithms that never act in a run, and on options that they do not read.
#include "runner/selection/strategy_options.hpp"

#include <catch2/catch_test_macros.hpp>

#include "strategies/program/parallel_plan.hpp"
#include "tests/selection/small_plans.hpp"

using namespace runner;
using nlohmann::json;

namespace {

/// The notes of a plan that contain `text`.
std::vector<std::string> notes_with(const std::string& text, const std::string& strategy, json options,
                                    std::optional<int64_t> max_steps, int ranks = 2) {
  auto recipe = small_recipe();
  recipe.strategy.name = strategy;
  recipe.strategy.options = std::move(options);
  recipe.train.max_steps = max_steps;
  if (!max_steps) recipe.train.max_epochs = 1;
  recipe.optimizer.name = "adam";
  auto notes = make_plan(recipe, cpus(ranks), 256).notes;
  std::erase_if(notes, [&](const std::string& note) { return note.find(text) == std::string::npos; });
  return notes;
}

json hook(const std::string& name, json options = nullptr) {
  json given = {{"ddp_comm_hook", name}};
  if (!options.is_null()) given["ddp_comm_hook_options"] = std::move(options);
  return given;
}

using Notes = std::vector<std::string>;

}  // namespace

TEST_CASE("a hook that begins after the last step of the run gets a note") {
  const std::string late = "and the run ends";
  for (const std::string name : {"powerSGD_hook", "batched_powerSGD_hook"}) {
    CHECK(notes_with(late, "ddp", hook(name), 20) ==
          Notes{"`" + name +
                "` compresses from step 1001 on (start_powerSGD_iter), and the run ends at step 20: it has "
                "no effect"});
    CHECK(notes_with(late, "ddp", hook(name), 1000).size() == 1);
    CHECK(notes_with(late, "ddp", hook(name), 1001).empty());
    CHECK(notes_with(late, "ddp", hook(name, {{"start_powerSGD_iter", 5}}), 20).empty());
    CHECK(notes_with(late, "ddp", hook(name), std::nullopt).empty());
  }
  const json local = {{"model_averaging_period", 4}};
  CHECK(notes_with(late, "ddp", hook("post_localSGD_hook", local), 100) ==
        Notes{"`post_localSGD_hook` trains replicas from step 101 on (start_localSGD_iter), and the run ends at step "
              "100: it has no effect"});
  CHECK(notes_with(late, "ddp", hook("post_localSGD_hook", local), 101).empty());
  CHECK(notes_with(late, "ddp", hook("noop_hook"), 1).empty());
  CHECK(notes_with(late, "ddp", json::object(), 1).empty());
}

TEST_CASE("an algorithm of bagua whose warm-up is longer than the run gets a note") {
  const std::string late = "and the run ends";
  CHECK(notes_with(late, "bagua", {{"algorithm", "qadam"}}, 20) ==
        Notes{"`qadam` differs from Adam from step 100 on (warmup_steps), and the run ends at step 20: it has no "
              "effect"});
  CHECK(notes_with(late, "bagua", {{"algorithm", "qadam"}}, 100).empty());
  CHECK(notes_with(late, "bagua", {{"algorithm", "async"}, {"warmup_steps", 20}}, 20) ==
        Notes{"`async` trains replicas from step 21 on (warmup_steps), and the run ends at step 20: it has no effect"});
  CHECK(notes_with(late, "bagua", {{"algorithm", "async"}}, 20).empty());
  CHECK(notes_with(late, "bagua", {{"algorithm", "bytegrad"}}, 20).empty());
}

TEST_CASE("options that a comm hook does not read get notes") {
  const json rate = {{"min_compression_rate", 3}, {"start_powerSGD_iter", 2}};
  CHECK(
      notes_with("min_compression_rate", "ddp", hook("batched_powerSGD_hook", rate), 20) ==
      Notes{"`min_compression_rate`: no effect with batched_powerSGD_hook, which compresses every bucket as a whole"});
  CHECK(notes_with("min_compression_rate", "ddp", hook("powerSGD_hook", rate), 20).empty());
  CHECK(notes_with("min_compression_rate", "ddp", hook("batched_powerSGD_hook"), 20).empty());

  const auto local = [](bool reduces) {
    return hook("post_localSGD_hook",
                {{"model_averaging_period", 4}, {"subgroup_size", 2}, {"post_local_gradient_allreduce", reduces}});
  };
  CHECK(notes_with("subgroup_size", "ddp", local(false), 200, 4) ==
        Notes{"`subgroup_size`: no effect with post_local_gradient_allreduce = false, with which no subgroup reduces "
              "gradients"});
  CHECK(notes_with("subgroup_size", "ddp", local(true), 200, 4).empty());
}

TEST_CASE("a cast of gradients that are not sent gets a note") {
  json wrapped = {{"ddp_comm_wrapper", "bf16_compress_wrapper"}};
  CHECK(notes_with("ddp_comm_wrapper", "ddp", wrapped, 20, 1) ==
        Notes{"`ddp_comm_wrapper`: no effect on one rank, which sends no gradients"});
  CHECK(notes_with("ddp_comm_wrapper", "ddp", wrapped, 20, 2).empty());
  CHECK(notes_with("ddp_comm_wrapper", "ddp", json::object(), 20, 1).empty());
  wrapped["ddp_comm_hook"] = "powerSGD_hook";
  CHECK(notes_with("ddp_comm_wrapper", "ddp", wrapped, 2000, 1).empty());  // its factors are cast on one rank, too
}

TEST_CASE("arguments of FairScale's FSDP are read") {
  for (const std::string strategy : {"fsdp", "ddp_fully_sharded"}) {
    CHECK(notes_with("bucket_cap_mb", strategy, {{"bucket_cap_mb", 25}}, 20) ==
          Notes{"`bucket_cap_mb`: no effect: gradients of a unit are reduced together; auto_wrap_policy makes larger "
                "units"});
    CHECK(notes_with("verbose", strategy, {{"verbose", true}}, 20) ==
          Notes{"`verbose`: no effect: `runner show` prints the plan of a run"});
    auto recipe = small_recipe();
    recipe.strategy.name = strategy;
    const auto predivide = [&] {
      const auto plan = make_plan(recipe, cpus(4), 256);
      return plan.entry->plan(plan.job).predivide;
    };
    CHECK(predivide() == 1.0);
    recipe.strategy.options = {{"gradient_predivide_factor", 2.0}};
    CHECK(predivide() == 2.0);
    recipe.strategy.options = {{"mixed_precision", true}};
    CHECK(refusal(recipe, cpus(4)) ==
          "mixed_precision = true is precision.mode = \"bf16-mixed\" or \"16-mixed\"; the option is a table such as "
          "{ reduce_dtype = \"bf16\" }");
    recipe.strategy.options = {{"mixed_precision", false}};
    CHECK(refusal(recipe, cpus(4)) == "mixed_precision = false is precision.mode = \"32-true\": remove the option");
  }
}
