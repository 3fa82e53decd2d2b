// Hooks in real training, on ranks that are threads: when they are called, what they change, and how ranks agree.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tests/support/hooked_run.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

TEST_CASE("hooks are called at Lightning's moments, in its order") {
  HookedRun run({2, "ddp"}, R"(
    local seen, hook = {}, {}
    for _, name in ipairs {"setup", "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_backward",
        "on_after_backward", "on_before_optimizer_step", "on_train_batch_end", "on_validation_start", "on_validation_end",
        "on_train_epoch_end", "on_save_checkpoint", "on_load_checkpoint", "on_exception", "on_train_end"} do
      hook[name] = function(ctx) seen[#seen + 1] = name .. " " .. ctx.step .. " " .. ctx.epoch end
    end
    hook.teardown = function(ctx)
      for i, line in ipairs(seen) do ctx:log(("%02d %s"):format(i, line), 0) end
    end
    return hook)");
  run.validation_rows = 12;
  run.recipe.train.max_steps = 2;
  run.go();
  CHECK(run.failures == std::vector<std::string>{"", ""});
  std::vector<std::string> lines, expected = {"setup 0 0", "on_train_start 0 0", "on_train_epoch_start 0 0"};
  for (const char* step : {"0", "1"}) {
    for (const char* moment : {"on_train_batch_start", "on_before_backward", "on_after_backward", "on_before_backward",
                               "on_after_backward", "on_before_optimizer_step"})
      expected.push_back(fmt::format("{} {} 0", moment, step));
    expected.push_back(fmt::format("on_train_batch_end {} 0", std::atoi(step) + 1));
  }
  for (const char* moment :
       {"on_validation_start", "on_validation_end", "on_train_epoch_end", "on_save_checkpoint", "on_train_end"})
    expected.push_back(fmt::format("{} 2 0", moment));
  REQUIRE(run.events_of("metrics").size() == 1);
  const json values = run.events_of("metrics")[0].at("values");
  for (const auto& [line, value] : values.items()) lines.push_back(line.substr(3));
  CHECK(lines == expected);
}

TEST_CASE("a hook of one rank stops all ranks after the same step, and the run is done") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_end = function(ctx)
      if ctx.world.rank == 1 and ctx.step == 3 then ctx:stop("enough") end
    end})");
  run.go();
  CHECK(run.failures == std::vector<std::string>{"", ""});
  CHECK(run.result.steps == 3);
  CHECK_FALSE(run.result.stopped);
  REQUIRE(run.events_of("stopping").size() == 1);
  CHECK(run.events_of("stopping")[0].at("reason") == "hook probe: rank 1: enough");
  CHECK(run.state(3).at("step") == 3);
}

TEST_CASE("a step that a hook of one rank skips changes nothing on any rank") {
  auto form = GENERATE(from_range(forms));
  INFO(name_of(form));
  auto hook = R"(return {
    on_before_optimizer_step = function(ctx)
      if ctx.step == 1 and ctx.world.rank == ctx.world.size - 1 then ctx:skip_step() end
    end})";
  HookedRun run(form, hook);
  run.recipe.train.max_steps = 3;
  run.go();
  std::vector<bool> skipped;
  for (const auto& event : run.events_of("step")) skipped.push_back(event.at("skipped"));
  CHECK(skipped == std::vector<bool>{false, true, false});
  CHECK(run.state(3).at("strategy").at("optimizer_steps") == 2);
  CHECK(run.state(3).at("step") == 3);
}

TEST_CASE("norms of gradients and parameters are exact over all ranks") {
  auto form = GENERATE(from_range(forms));
  INFO(name_of(form));
  auto hook = R"(return {
    on_before_optimizer_step = function(ctx)
      local squares, parameters, mean, elements = 0, 0, 0, 0
      for _, name in ipairs(ctx:parameter_names()) do
        local gradient, parameter = ctx:gradient(name), ctx:parameter(name)
        squares = squares + gradient:norm() ^ 2
        parameters = parameters + parameter:norm() ^ 2
        mean = mean + (parameter * 2 - parameter):mean() * parameter.numel
        elements = elements + parameter.numel
      end
      ctx:log("gradients", math.sqrt(squares))
      ctx:log("parameters", math.sqrt(parameters))
      ctx:log("mean", mean / elements)
      local weights = ctx:parameter("embedding.tokens.weight")
      local histogram, counted = weights:histogram(7), 0
      for _, count in ipairs(histogram.counts) do counted = counted + count end
      ctx:log("counted", counted - weights.numel)
      ctx:log("range", (histogram.max - weights:max()) + (histogram.min - weights:min()))
    end})";
  HookedRun run(form, hook), reference({1, "single"}, hook);
  run.go();
  reference.go();
  REQUIRE(run.failures == std::vector<std::string>(static_cast<size_t>(form.world_size)));
  auto norms = run.of_steps("grad_norm"), logged = run.logged("gradients");
  REQUIRE(logged.size() == 4);
  for (size_t i = 0; i < norms.size(); ++i) {
    CHECK_THAT(logged[i], WithinRel(norms[i], 1e-5));
    CHECK_THAT(run.logged("parameters")[i], WithinRel(reference.logged("parameters")[i], 1e-4));
    CHECK_THAT(run.logged("mean")[i], WithinRel(reference.logged("mean")[i], 1e-2));
  }
  CHECK(run.logged("counted") == std::vector<double>(4, 0));
  CHECK(run.logged("range") == std::vector<double>(4, 0));
}

TEST_CASE("what hooks do to gradients and parameters counts, under every strategy alike") {
  auto form = GENERATE(from_range(forms));
  INFO(name_of(form));
  auto hook = R"(return {
    on_train_batch_start = function(ctx)
      if ctx.step ~= 1 then return end
      for _, name in ipairs(ctx:parameter_names()) do ctx:parameter(name):scale_(0.5) end
    end,
    on_before_optimizer_step = function(ctx)
      if ctx.step ~= 0 then return end
      for _, name in ipairs(ctx:parameter_names()) do
        local gradient = ctx:gradient(name)
        local kept = gradient:clone()
        gradient:scale_(3):add_(kept):copy_(gradient / 2)
      end
    end})";
  HookedRun run(form, hook), reference({1, "single"}, hook), plain({1, "single"}, "");
  run.go();
  reference.go();
  plain.go();
  REQUIRE(run.failures == std::vector<std::string>(static_cast<size_t>(form.world_size)));
  CHECK_THAT(run.of_steps("grad_norm")[0], WithinRel(2 * plain.of_steps("grad_norm")[0], 1e-5));
  CHECK(std::abs(run.of_steps("loss")[1] - plain.of_steps("loss")[1]) > 1e-3);
  for (size_t i = 0; i < 4; ++i) CHECK_THAT(run.of_steps("loss")[i], WithinRel(reference.of_steps("loss")[i], 1e-4));
}

TEST_CASE("a hook's learning rate holds for its step, and must be that of every rank") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_start = function(ctx) if ctx.step == 1 then ctx:set_lr(0.5) end end})");
  run.go();
  CHECK(run.of_steps("lr") == std::vector<double>{1e-2, 0.5, 1e-2, 1e-2});
  run.set_hook("return {on_before_optimizer_step = function(ctx) if ctx.world.rank == 1 then ctx:set_lr(0.5) end end}");
  run.go();
  for (const auto& failure : run.failures)
    CHECK_THAT(failure,
               ContainsSubstring("hook probe failed in on_before_optimizer_step: set_lr: every rank must set the same "
                                 "rate: rank 0 sets none, rank 1 sets 0.5"));
  run.set_hook("return {on_train_batch_end = function(ctx) ctx:set_lr(0.5) end}");
  run.go();
  CHECK_THAT(run.failures[0], ContainsSubstring("probe.lua:1: set_lr: not in on_train_batch_end: each step begins with "
                                                "the schedule's rate"));
}

TEST_CASE("values are logged over ranks, and not under the trainer's own names") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_end = function(ctx)
      local value = ctx.step * 10 + ctx.world.rank
      for _, sync in ipairs {"sum", "mean", "min", "max"} do ctx:log(sync, value, {sync = sync}) end
      ctx:log("alone", value)
      ctx:log("reduced", ctx.world:all_reduce(value, "max"))
      ctx:log("gathered", ctx.world:all_gather(value)[2])
      ctx:log("sent", ctx.world:broadcast(value, 1))
      ctx.world:barrier()
    end})");
  run.recipe.train.max_steps = 1;
  run.go();
  REQUIRE(run.failures == std::vector<std::string>{"", ""});
  REQUIRE(run.events_of("metrics").size() == 1);
  CHECK(run.events_of("metrics")[0].at("step") == 1);
  CHECK(run.events_of("metrics")[0].at("values") == json({{"sum", 21.0},
                                                          {"mean", 10.5},
                                                          {"min", 10.0},
                                                          {"max", 11.0},
                                                          {"alone", 10.0},
                                                          {"reduced", 11.0},
                                                          {"gathered", 11.0},
                                                          {"sent", 11.0}}));
  run.set_hook("return {on_train_batch_end = function(ctx) ctx:log('val_loss', 1) end}");
  run.go();
  CHECK_THAT(run.failures[1],
             ContainsSubstring("log: \"val_loss\" is a metric of the trainer's own; take another name, "
                               "such as \"hook/val_loss\""));
  run.set_hook("return {on_train_batch_end = function(ctx) ctx:log('r' .. ctx.world.rank, 1, {sync = 'sum'}) end}");
  run.go();
  CHECK_THAT(run.failures[0], ContainsSubstring("log with a sync: ranks log other names"));
}

TEST_CASE("a hook that fails on one rank fails on all; disabled, training goes on with the same losses") {
  auto hook = R"(return {
    on_train_batch_end = function(ctx)
      if ctx.step == 2 and ctx.world.rank == 0 then error("broken") end
      ctx:log("mean", ctx.world:all_reduce(ctx.step, "mean"))
    end})";
  auto form = GENERATE(Form{2, "ddp"}, Form{2, "fsdp"});
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
             ContainsSubstring("it is left out from now on"));
}

TEST_CASE("a collective that not every rank calls is an error that says who is where") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_end = function(ctx) if ctx.world.rank == 1 then ctx.world:all_reduce(1) end end})");
  run.go();
  for (const auto& failure : run.failures)
    CHECK_THAT(failure, ContainsSubstring(
                            "all_reduce (sum): every rank must call it, in the same order: rank 0 is at the end of "
                            "the call, rank 1 at all_reduce (sum)"));
}

TEST_CASE("an endless hook is stopped, and the losses are those of training without it") {
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

TEST_CASE("a handle ends with the call that got it; a clone stays") {
  HookedRun run({1, "single"}, R"(
    local handle, clone
    return {
      on_train_batch_start = function(ctx)
        if ctx.step == 0 then
          handle = ctx:parameter("embedding.tokens.weight")
          clone = handle:clone()
        elseif ctx.step == 1 then
          ctx:log("changed", (ctx:parameter("embedding.tokens.weight") - clone):norm())
        else
          handle:norm()
        end
      end})");
  run.go();
  REQUIRE(run.logged("changed").size() == 1);
  CHECK(run.logged("changed")[0] > 0);
  CHECK_THAT(run.failures[0], ContainsSubstring("this tensor is not valid any more: it ended with the call of the hook "
                                                "that got it; keep a clone()"));
}

TEST_CASE("parameters do not change inside a step, and gradients are there before the optimizer's step") {
  HookedRun run({1, "single"},
                "return {on_after_backward = function(ctx) ctx:parameter('embedding.tokens.weight'):scale_(2) end}");
  run.go();
  CHECK_THAT(run.failures[0], ContainsSubstring("embedding.tokens.weight cannot change inside a step"));
  run.set_hook("return {on_train_batch_end = function(ctx) ctx:gradient('embedding.tokens.weight') end}");
  run.go();
  CHECK_THAT(run.failures[0], ContainsSubstring("gradient: not in on_train_batch_end: gradients are there in "
                                                "on_before_optimizer_step"));
}

TEST_CASE("a hook's state goes into checkpoints and comes back on every rank, also on other ranks and strategies") {
  auto hook = R"(return {
    on_train_batch_end = function(ctx, state)
      state.steps = (state.steps or 0) + 1
      if ctx.step == 2 then ctx:checkpoint() end
      ctx:log("seen", state.steps, {sync = "max"})
    end,
    on_save_checkpoint = function(ctx, state) state.saved_at = ctx.step end,
    on_load_checkpoint = function(ctx, state) state.loaded = state.saved_at end,
    teardown = function(ctx, state) ctx:log("loaded", state.loaded or -1) end})";
  HookedRun run({1, "single"}, hook);
  run.go();
  CHECK(run.state(2).at("hooks") == json({{"probe", {{"steps", 2}, {"saved_at", 2}}}}));
  run.tiny.world_size = 2;
  run.tiny.accumulation /= 2;
  run.tiny.strategy = "fsdp";
  run.go(run.checkpoint(2));
  CHECK(run.failures == std::vector<std::string>{"", ""});
  CHECK(run.logged("seen") == std::vector<double>{3, 4});
  CHECK(run.logged("loaded") == std::vector<double>{2});
}

TEST_CASE("train.early_stopping stops a run whose validation does not improve") {
  HookedRun run({2, "ddp"}, "");
  run.validation_rows = 12;
  run.recipe.train.early_stopping = Recipe::Train::EarlyStopping();
  run.recipe.train.early_stopping->patience = 2;
  run.recipe.train.early_stopping->min_delta = 100;  // nothing is an improvement
  run.recipe.train.val_check_interval = 1;
  run.recipe.train.max_steps = 10;
  run.go();
  CHECK(run.result.steps == 3);
  CHECK_FALSE(run.result.stopped);
  CHECK_THAT(run.events_of("stopping").at(0).at("reason").get<std::string>(),
             ContainsSubstring("hook early_stopping: val_loss has not improved on"));
  CHECK(run.state(3).at("hooks").at("early_stopping").at("waited") == 2);
}

TEST_CASE("frozen parameters stay as they are until they thaw") {
  auto form = GENERATE(Form{1, "single"}, Form{2, "ddp"}, Form{2, "fsdp"});
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

TEST_CASE("on_exception hears what ended the training, alone") {
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
             ContainsSubstring("barrier: the other ranks are not there in on_exception"));
  CHECK_THAT(run.failures[1], ContainsSubstring("broken"));
}
