// Hooks that fail, call different collectives on different ranks, or never end, with ranks as threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/hooked_run.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a hook that fails on one rank fails on all; when it is disabled, training continues with the same losses") {
  auto hook = R"(return {
    on_train_batch_end = function(ctx)
      if ctx.step == 2 and ctx.world.rank == 0 then error("broken") end
      ctx:log("mean", ctx.world:all_reduce(ctx.step, "mean"))
    end})";
  auto form = GENERATE(HookedForm{2, "ddp"}, HookedForm{2, "fsdp"});
  HookedRun run(form, hook), plain(form, "");
  run.go();
  for (const auto& failure : run.failures)
    CHECK_THAT(failure, ContainsSubstring("hook probe failed in on_train_batch_end: rank 0: ") &&
                            ContainsSubstring("probe.lua:3: broken"));
  run.recipe.hooks.on_error = "disable";
  run.go();
  plain.go();
  CHECK(run.failures == std::vector<std::string>{"", ""});
  CHECK(run.logged("mean") == std::vector<double>{1});
  CHECK(run.of_steps("loss") == plain.of_steps("loss"));
  REQUIRE(run.events_of("note").size() == 1);
  CHECK_THAT(run.events_of("note")[0].at("message").get<std::string>(),
             ContainsSubstring("it is disabled from now on"));
}

TEST_CASE("a hook that fails after it changed parameters or gradients ends the training in any case") {
  auto change = GENERATE(as<std::string>(), "on_train_batch_end = function(ctx) ctx:parameter(name):scale_(0.5)",
                         "on_before_optimizer_step = function(ctx) ctx:gradient(name):scale_(0.5)");
  auto form = GENERATE(HookedForm{1, "single"}, HookedForm{2, "ddp"});
  INFO(change << " " << name_of(form));
  HookedRun run(form, "local name = 'embedding.tokens.weight'\nreturn {" + change +
                          " if ctx.step > 0 and ctx.world.rank == ctx.world.size - 1 then error('broken') end end}");
  run.recipe.hooks.on_error = "disable";
  run.go();
  for (const auto& failure : run.failures)
    CHECK_THAT(failure, ContainsSubstring("broken") &&
                            ContainsSubstring("it had already changed parameters or gradients, maybe not all of "
                                              "them or not on every rank: training stops"));
  CHECK(run.events_of("note").empty());
}

TEST_CASE("a collective that not every rank calls is an error that names each rank's call") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_end = function(ctx) if ctx.world.rank == 1 then ctx.world:all_reduce(1) end end})");
  run.go();
  for (const auto& failure : run.failures)
    CHECK_THAT(failure, ContainsSubstring(
                            "all_reduce (sum): every rank must call it, in the same order: rank 0 is at the end of "
                            "the call, rank 1 at all_reduce (sum)"));
}

TEST_CASE("an endless hook is stopped, and the losses equal those of training without it") {
  auto moment = GENERATE(as<std::string>(), "on_train_batch_start", "on_before_backward", "on_before_optimizer_step",
                         "on_train_batch_end");
  INFO(moment);
  HookedRun run({2, "fsdp"}, fmt::format("return {{{} = function() while true do pcall(error) end end}}", moment)),
      plain({2, "fsdp"}, "");
  run.recipe.hooks.on_error = "disable";
  run.recipe.hooks.instruction_limit = 200'000;
  run.go();
  plain.go();
  CHECK(run.of_steps("loss") == plain.of_steps("loss"));
  REQUIRE(run.events_of("note").size() == 1);
  CHECK_THAT(run.events_of("note")[0].at("message").get<std::string>(),
             ContainsSubstring("took more than 200000 Lua instructions"));
}

TEST_CASE("on_exception gets the error that ended the training, on one rank only") {
  HookedRun run({2, "ddp"}, R"(
    local heard
    return {
      on_train_batch_end = function(ctx) if ctx.step == 2 then error("broken") end end,
      on_exception = function(ctx)
        ctx:log(ctx.exception:match("broken"), ctx.step)
        ctx.world:barrier()
      end})");
  run.go();
  REQUIRE(run.events_of("note").size() == 1);
  CHECK_THAT(run.events_of("note")[0].at("message").get<std::string>(),
             ContainsSubstring("barrier: other ranks do not take part in on_exception"));
  CHECK_THAT(run.failures[1], ContainsSubstring("broken"));
}
