// Hooks in real training, with ranks as threads: moments, changes of the training, and agreement of ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tests/support/hooked_run.hpp"
#include "tests/support/script_runs.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

TEST_CASE("hooks are called at Lightning's moments and in Lightning's order") {
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

TEST_CASE("a hook on one rank stops all ranks after the same step, and the run ends normally") {
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

TEST_CASE("a hook's stop stays in the checkpoint until the recipe ends the training in another way") {
  const std::string hook = R"(return {
    on_train_batch_end = function(ctx) if ctx.step == 3 then ctx:stop("enough") end end})";
  HookedRun run({2, "ddp"}, hook);
  run.recipe.train.max_steps = 5;
  run.go();
  CHECK(run.result.steps == 3);
  const auto step_3 = run.checkpoint(3);
  run.go(step_3);
  CHECK(run.result.steps == 3);
  CHECK_FALSE(run.result.stopped);
  REQUIRE(run.events_of("stopping").size() == 1);
  CHECK(run.events_of("stopping")[0].at("reason") == "hook probe: enough");

  fs::copy(step_3, run.folder.path / "kept", fs::copy_options::recursive);
  HookedRun other({2, "ddp"}, hook);
  other.recipe.hooks = run.recipe.hooks;
  other.recipe.train.max_steps = 5;
  other.go(run.folder.path / "kept");
  CHECK(other.result.steps == 5);

  run.recipe.train.max_steps = 4;
  run.go(step_3);
  CHECK(run.result.steps == 4);
  run.recipe.train.max_steps = 5;
  run.set_hook(hook + " -- changed");
  run.go(step_3);
  CHECK(run.result.steps == 5);
}

TEST_CASE("a run that was stopped in a validation completes it and the end of the epoch in order, with its epoch") {
  HookedRun run({2, "ddp"}, R"(local hook = {}
    for _, name in ipairs {"on_validation_end", "on_train_epoch_end", "on_train_epoch_start"} do
      hook[name] = function(ctx, state)
        state.calls = (state.calls or "") .. name .. " " .. ctx.step .. " " .. ctx.epoch .. "\n"
      end
    end
    return hook)");
  run.validation_rows = 12;
  run.stop_in_validation = true;
  run.go();
  CHECK(run.result.stopped);
  CHECK(run.result.steps == 2);
  run.stop_in_validation = false;
  run.go(run.checkpoint(2));
  CHECK(run.result.steps == 4);
  CHECK(run.state(4).at("hooks").at("probe").at("calls") ==
        "on_train_epoch_start 0 0\non_validation_end 2 0\non_train_epoch_end 2 0\n"
        "on_train_epoch_start 2 1\non_validation_end 4 1\non_train_epoch_end 4 1\n");
}

TEST_CASE("a run that a hook stops before its first step has no loss") {
  HookedRun run({1, "single"}, "return {on_train_start = function(ctx) ctx:stop('enough') end}");
  run.go();
  CHECK(run.result.steps == 0);
  REQUIRE(run.events_of("finished").size() == 1);
  CHECK(run.events_of("finished")[0].at("final_loss").is_null());
}

TEST_CASE("points of on_train_end are marked, because a run that continues has not ended there") {
  HookedRun run({1, "single"}, R"(return {
    on_train_batch_end = function(ctx) ctx:log("step", ctx.step) end,
    on_train_end = function(ctx) ctx:log("end", ctx.step) end})");
  run.go();
  for (const auto& event : run.events_of("metrics"))
    CHECK(event.value("at_end", false) == event.at("values").contains("end"));
  CHECK(run.logged("end").size() == 1);
}

TEST_CASE("a hook on one rank can skip a step on all ranks") {
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

TEST_CASE("hooks' changes of gradients and parameters take effect, equally under every strategy") {
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

TEST_CASE("a hook that changes other parameters or gradients on one rank is an error") {
  const std::string on_rank_0 = "if ctx.world.rank == 0 then ctx:KIND('embedding.tokens.weight'):scale_(0.5) end",
                    by_rank = "ctx:KIND(ctx:parameter_names()[1 + ctx.world.rank]):scale_(0.5)";
  for (const auto& [moment, kind] :
       {std::pair("on_train_batch_start", "parameter"), std::pair("on_before_optimizer_step", "gradient")})
    for (std::string change : {on_rank_0, by_rank}) {
      change.replace(change.find("KIND"), 4, kind);
      HookedRun run({2, "ddp"}, fmt::format("return {{{} = function(ctx) {} end}}", moment, change));
      run.go();
      for (const auto& failure : run.failures)
        CHECK_THAT(failure, ContainsSubstring("every rank must change the same parameters and gradients, in the same "
                                              "order: rank 0 makes 1 change, rank 1 makes "));
    }
}

TEST_CASE("a hook's learning rate applies to one step, and must be equal on all ranks") {
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

TEST_CASE("values are logged with reductions over ranks, but not under the trainer's metric names") {
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
             ContainsSubstring("log: the trainer itself records a metric named \"val_loss\"; take another name, "
                               "such as \"hook/val_loss\""));
  run.set_hook("return {on_train_batch_end = function(ctx) ctx:log('caf\\xe9', 1) end}");
  run.go();
  CHECK_THAT(run.failures[1], ContainsSubstring("probe.lua:1: log: the name \"caf\\xE9\" is not UTF-8 text"));
  run.set_hook("return {on_train_batch_end = function(ctx) ctx:log('r' .. ctx.world.rank, 1, {sync = 'sum'}) end}");
  run.go();
  CHECK_THAT(run.failures[0],
             ContainsSubstring("log with a sync: every rank must log the same names with the same sync"));
}

TEST_CASE("a logged value that is not finite is recorded, with one note for each name") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_end = function(ctx)
      ctx:log("ratio", 1 / 0)
      ctx:log("other", 0 / 0, {sync = "max"})
      ctx:log("fine", 1)
    end})");
  run.recipe.train.max_steps = 3;
  run.go();
  REQUIRE(run.failures == std::vector<std::string>{"", ""});
  REQUIRE(run.events_of("note").size() == 2);
  CHECK(run.events_of("note")[0].at("message") ==
        "hook probe logs ratio = inf at step 1, maybe after a division by zero; the value is recorded unchanged");
  CHECK(run.events_of("metrics").size() == 3);
}

TEST_CASE("a hook that fails on one rank fails on all; when it is disabled, training continues with the same losses") {
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
             ContainsSubstring("it is disabled from now on"));
}

TEST_CASE("a hook that fails after it changed parameters or gradients ends the training in any case") {
  auto change = GENERATE(as<std::string>(), "on_train_batch_end = function(ctx) ctx:parameter(name):scale_(0.5)",
                         "on_before_optimizer_step = function(ctx) ctx:gradient(name):scale_(0.5)");
  auto form = GENERATE(Form{1, "single"}, Form{2, "ddp"});
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

TEST_CASE("metrics and disabled hooks survive a resume") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_end = function(ctx)
      if ctx.step == 1 then
        ctx:log("shared", 1 / 0, {sync = "max"})
        ctx:log("rank_0s", 7)
      end
      if ctx.step < 4 then return end
      local metrics, mine = ctx.metrics, ctx.is_global_zero
      assert(metrics.shared == math.huge and metrics.rank_0s == (mine and 7 or nil))
      assert(metrics.val_loss and metrics.grad_norm)
      ctx:log("survived", 1)
    end})");
  write_file_atomic(run.folder.path / "broken.lua",
                    "return {setup = function(ctx) ctx:log('called', 1) end,\n"
                    "on_train_batch_end = function(ctx) ctx:log('calls', ctx.step) error('broken') end}");
  run.recipe.hooks.files.push_back((run.folder.path / "broken.lua").string());
  run.recipe.hooks.on_error = "disable";
  run.recipe.checkpoint.every_n_steps = 3;
  run.recipe.train.val_check_interval = 2;
  run.validation_rows = 12;
  run.go();
  REQUIRE(run.logged("survived").size() == 1);
  CHECK(run.logged("called").size() == 1);
  run.go(run.checkpoint(3));
  CHECK(run.failures == std::vector<std::string>{"", ""});
  CHECK(run.logged("survived").size() == 1);
  CHECK(run.logged("called").empty());
  REQUIRE(run.events_of("note").size() == 1);
  CHECK_THAT(run.events_of("note")[0].at("message").get<std::string>(),
             ContainsSubstring("hook broken had failed before this checkpoint and stays disabled"));
  run.recipe.hooks.on_error = "stop";
  run.go(run.checkpoint(3));
  CHECK_THAT(run.failures[0], ContainsSubstring("hook broken failed in on_train_batch_end"));
}

TEST_CASE("tensors of hooks differ between ranks if replicas differ, also after a resume") {
  HookedRun run({3, "lua:local_sgd"}, R"(return {
    on_train_batch_end = function(ctx, state)
      local weight = ctx:parameter("embedding.tokens.weight")
      if ctx.step == 2 then state.mine = weight:clone() end
      if ctx.step > 2 then weight:lerp_(state.mine, 0.5) end -- so what follows depends on it, on each rank
    end})");
  auto made = script_run("lua:local_sgd", {{"every", 100}});
  run.tiny.make = made.make;
  run.tiny.options = made.options;
  run.recipe.strategy.name = "lua:local_sgd";
  run.recipe.checkpoint.every_n_steps = 1;
  run.recipe.checkpoint.keep_last = 0;
  run.recipe.train.max_steps = 6;
  auto replicas = [&] {
    auto tensor = run.tensor(6, "replica/param/embedding.tokens.weight");
    return std::pair(tensor, run.tensor(6, "param/embedding.tokens.weight"));
  };
  run.go();
  REQUIRE(run.failures == std::vector<std::string>(3));
  auto whole = replicas();
  auto of_rank_0 = run.tensor(3, "hook/probe/mine"), of_others = run.tensor(3, "replica/hook/probe/mine");
  CHECK(of_others.numel() == 2 * of_rank_0.numel());
  CHECK_FALSE(torch::equal(of_others.narrow(0, 0, of_rank_0.numel()), of_rank_0));
  run.go(run.checkpoint(3));
  REQUIRE(run.failures == std::vector<std::string>(3));
  auto resumed = replicas();
  CHECK(torch::equal(resumed.first, whole.first));
  CHECK(torch::equal(resumed.second, whole.second));
}

TEST_CASE("replicas of another number of ranks are rejected, or ignored with a note") {
  HookedRun run({3, "lua:local_sgd"}, "");
  auto made = script_run("lua:local_sgd", {{"every", 100}});
  run.tiny.make = made.make;
  run.tiny.options = made.options;
  run.recipe.strategy.name = "lua:local_sgd";
  run.recipe.checkpoint.every_n_steps = 2;
  run.recipe.checkpoint.keep_last = 0;
  run.go();
  for (int ranks : {1, 2}) {
    run.tiny.world_size = ranks;
    CHECK_THROWS_WITH(run.go(run.checkpoint(2)),
                      ContainsSubstring(fmt::format("the checkpoint contains a copy of the model for each of 3 ranks, "
                                                    "and this run has {}: lua:local_sgd can continue only with",
                                                    ranks)));
  }
  run.tiny.make = nullptr;
  run.tiny.strategy = run.recipe.strategy.name = "ddp";
  run.tiny.options = json::object();
  run.go(run.checkpoint(2));
  REQUIRE(run.events_of("note").size() == 1);
  CHECK(run.events_of("note")[0].at("message") ==
        "the checkpoint's 3 ranks each trained a copy of the model; ddp continues with rank 0's copy");
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

TEST_CASE("a handle is valid only in the call that got it; a clone stays valid") {
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
  CHECK_THAT(run.failures[0], ContainsSubstring("this tensor is not valid any more: it is valid only in the call that "
                                                "got it; keep a clone()"));
}

TEST_CASE("parameters cannot change inside a step, and gradients are available before the optimizer's step") {
  HookedRun run({1, "single"},
                "return {on_after_backward = function(ctx) ctx:parameter('embedding.tokens.weight'):scale_(2) end}");
  run.go();
  CHECK_THAT(run.failures[0], ContainsSubstring("embedding.tokens.weight cannot change inside a step"));
  run.set_hook("return {on_train_batch_end = function(ctx) ctx:gradient('embedding.tokens.weight') end}");
  run.go();
  CHECK_THAT(run.failures[0], ContainsSubstring("gradient: not in on_train_batch_end: gradients are available in "
                                                "on_before_optimizer_step"));
}

TEST_CASE("checkpoints restore a hook's state on every rank, also with other strategies and numbers of ranks") {
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
