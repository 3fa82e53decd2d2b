// The hooks of recipes/hooks that stop, freeze and measure, with ranks as threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tests/support/hooked_run.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

TEST_CASE("train.early_stopping stops a run whose validation does not improve") {
  HookedRun run({2, "ddp"}, "");
  run.validation_rows = 12;
  run.recipe.train.early_stopping = Recipe::Train::EarlyStopping();
  run.recipe.train.early_stopping->patience = 2;
  run.recipe.train.early_stopping->min_delta = 100;  // so nothing is an improvement
  run.recipe.train.val_check_interval = 1;
  run.recipe.train.max_steps = 10;
  run.go();
  CHECK(run.result.steps == 3);
  CHECK_FALSE(run.result.stopped);
  CHECK_THAT(run.events_of("stopping").at(0).at("reason").get<std::string>(),
             ContainsSubstring("hook early_stopping: val_loss has not improved on"));
  CHECK(run.state(3).at("hooks").at("early_stopping").at("waited") == 2);
}

TEST_CASE("train.early_stopping can monitor a metric that a hook logs, also on rank 0 only") {
  HookedRun run({2, "ddp"}, "return {on_validation_end = function(ctx) ctx:log('accuracy', 1 / ctx.step) end}");
  run.validation_rows = 12;
  run.recipe.train.early_stopping = Recipe::Train::EarlyStopping{"accuracy", 2, 0, "max"};
  run.recipe.train.val_check_interval = 1;
  run.recipe.train.max_steps = 10;
  run.go();
  CHECK(run.failures == std::vector<std::string>{"", ""});
  CHECK(run.result.steps == 3);
  CHECK(run.events_of("stopping").at(0).at("reason") ==
        "hook early_stopping: accuracy has not improved on 1 for 2 validations");
}

TEST_CASE("freezing rejects empty parameter lists, and optimizers that would accumulate weight decay") {
  HookedRun run({2, "ddp"}, "");
  run.recipe.hooks.files = {"freezing"};
  auto said = [&](const json& options) {
    run.recipe.hooks.options = {{"freezing", options}};
    run.go();
    return run.failures[0];
  };
  const std::string names = "begin with embedding., blocks.0., blocks.1., blocks.2., ";
  CHECK_THAT(said(json::object()), ContainsSubstring("`parameters` names nothing to freeze; names " + names));
  CHECK_THAT(said({{"parameters", {"embedding.", "bloks.0."}}}),
             ContainsSubstring("no parameter's name begins with `bloks.0.`; they " + names));
  CHECK_THAT(said({{"parameters", {"embedding.weight"}}}), ContainsSubstring("begins with `embedding.weight`"));
  run.recipe.optimizer.name = "adam";
  run.recipe.optimizer.weight_decay = 0.1;
  CHECK(said({{"parameters", {"embedding."}}}).empty());
  CHECK_THAT(
      said({{"parameters", {"embedding."}}, {"thaw_every", 2}}),
      ContainsSubstring("adam would accumulate weight decay in the moments of frozen parameters until they thaw"));
}

TEST_CASE("the first steps of a group that thaws under Adam are as large as Adam's first steps") {
  HookedRun run({1, "single"}, R"(
    local before
    return {
      on_train_batch_start = function(ctx) before = ctx:parameter("embedding.tokens.weight"):clone() end,
      on_train_batch_end = function(ctx)
        local moved = ctx:parameter("embedding.tokens.weight") - before
        ctx:log("moved", math.max(moved:max(), -moved:min()))
      end})");
  run.recipe.hooks.files.insert(run.recipe.hooks.files.begin(), "freezing");
  run.recipe.hooks.options = {{"freezing", {{"parameters", {"embedding."}}, {"thaw_every", 6}}}};
  run.recipe.train.max_steps = 9;
  run.tiny.optimizer.weight_decay = 0;
  run.go();
  REQUIRE(run.failures[0].empty());
  auto moved = run.logged("moved");
  REQUIRE(moved.size() == 9);
  CHECK(moved[5] == 0);
  CHECK_THAT(moved[6], WithinRel(run.tiny.optimizer.lr, 0.01));  // Adam's first step has the size of the rate
  for (size_t later : {7, 8}) CHECK(moved[later] < 1.05 * run.tiny.optimizer.lr);
}

TEST_CASE("frozen parameters do not change until they thaw") {
  auto form = GENERATE(HookedForm{1, "single"}, HookedForm{2, "ddp"}, HookedForm{2, "fsdp"});
  INFO(name_of(form));
  HookedRun run(form, R"(
    local first
    return {
      on_train_batch_start = function(ctx) first = first or ctx:parameter("embedding.tokens.weight"):clone() end,
      on_train_batch_end = function(ctx) ctx:log("moved", (ctx:parameter("embedding.tokens.weight") - first):norm()) end
    })");
  run.recipe.hooks.files.insert(run.recipe.hooks.files.begin(), "freezing");
  run.recipe.hooks.options = {{"freezing", {{"parameters", {"embedding."}}, {"thaw_every", 2}}}};
  run.go();
  auto moved = run.logged("moved");
  REQUIRE(moved.size() == 4);
  CHECK(moved[0] == 0);
  CHECK(moved[1] == 0);
  CHECK(moved[2] > 0);
  CHECK(moved[3] > moved[2] * 0.5);
}

TEST_CASE("the shipped hook logs each block's gradient norm") {
  HookedRun run({2, "fsdp"}, "");
  run.recipe.hooks.files = {"gradient_norms"};
  run.recipe.hooks.options = {{"gradient_norms", {{"every", 2}}}};
  run.go();
  auto norms = run.of_steps("grad_norm");
  double squares = 0;
  const json values = run.events_of("metrics").at(1).at("values");
  for (const auto& [name, value] : values.items()) squares += value.get<double>() * value.get<double>();
  CHECK(run.events_of("metrics").size() == 2);
  CHECK(run.logged("gradient_norm/blocks.1").size() == 2);
  CHECK_THAT(std::sqrt(squares), WithinRel(norms[2], 1e-5));
}
