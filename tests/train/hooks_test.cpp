// Hooks in real training, with ranks as threads: moments, changes of the training, and agreement of ranks.
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
using nlohmann::json;

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

TEST_CASE("many metrics of a step arrive, in events that are short enough for the pipe") {
  HookedRun run({1, "single"}, R"(return {
    on_train_end = function(ctx)
      for i = 1, 60000 do ctx:log(("layer/%d/the/share/of/zeros"):format(i), i) end
    end})");
  run.recipe.train.max_steps = 1;
  run.go();
  CHECK(run.failures == std::vector<std::string>{""});
  CHECK(run.events_of("note").empty());
  size_t count = 0;
  for (const auto& event : run.events_of("metrics")) {
    CHECK(event.dump().size() < (512 << 10));
    CHECK(event.at("step") == 1);
    CHECK(event.at("at_end") == true);
    count += event.at("values").size();
  }
  CHECK(count == 60'000);
  CHECK(run.logged("layer/60000/the/share/of/zeros") == std::vector<double>{60'000});
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
    on_train_batch_end = function(ctx) ctx:log("steps_made", ctx.step) end,
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

TEST_CASE("the results of all methods of tensors are equal under every strategy, and other methods are refused") {
  auto form = GENERATE(from_range(forms));
  INFO(name_of(form));
  HookedRun run(form, R"(
    local function same(a, b) assert(math.abs(a - b) <= 1e-5 * math.abs(b), a .. " instead of " .. b) end
    local function refused(why, method, tensor, ...)
      local ok, said = pcall(tensor[method], tensor, ...)
      assert(not ok and said:find(why, 1, true), said)
    end
    return {
      on_train_batch_end = function(ctx)
        local kept = ctx:parameter("embedding.tokens.weight"):clone()
        local sum, norm = kept:sum(), kept:norm()
        assert(kept:is_finite())
        assert(not (kept / 0):is_finite())
        same(kept:clone():zero_():exp():mean(), 1)
        same(kept:clone():zero_():add_(kept, 2):norm(), 2 * norm)
        same((-kept):add_(3):sum(), 3 * kept.numel - sum)
        same((kept:abs():sqrt() ^ 2):norm(), norm)
        same(kept:to("float64"):tanh():pow(2):sum(), kept:tanh():norm() ^ 2)
        refused("to: tensors of a hook have float32 or float64", "to", kept, "bfloat16")
        refused("softmax: only the tensors of `loss` have rows and columns", "softmax", kept)
        refused("narrow: only tensors of strategies have it; each rank has its own elements of embedding.tokens.weight",
          "narrow", kept, 0, 1)
        refused("put_: only tensors of strategies have it", "put_", kept, kept, 1)
      end})");
  run.recipe.train.max_steps = 1;
  run.go();
  CHECK(run.failures == std::vector<std::string>(static_cast<size_t>(form.world_size)));
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
        CHECK_THAT(failure, ContainsSubstring("every rank must change the same parameters and gradients: "
                                              "rank 0 makes 1 change, rank 1 makes "));
    }
}

TEST_CASE("a hook's learning rate applies to one step, and must be equal on all ranks") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_start = function(ctx)
      local before = ctx.lr
      if ctx.step == 1 then ctx:set_lr(0.5) end
      assert(ctx.lr == before, "the rate changes after the call")
    end})");
  run.go();
  CHECK(run.failures == std::vector<std::string>{"", ""});
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

TEST_CASE("a frozen parameter has no gradient, and its handle reads and writes its values") {
  auto form = GENERATE(from_range(forms));
  INFO(name_of(form));
  HookedRun run(form, R"(return {
    on_before_optimizer_step = function(ctx)
      ctx:log("frozen", ctx:gradient("embedding.tokens.weight") and 0 or 1)
      ctx:log("trained", ctx:gradient("head.norm.weight"):norm())
    end,
    on_train_batch_end = function(ctx)
      ctx:log("norm", ctx:parameter("embedding.tokens.weight"):norm())
      if ctx.step == 3 then ctx:parameter("embedding.tokens.weight"):scale_(2) end
    end})");
  run.tiny.frozen = {"embedding.*"};
  run.go();
  REQUIRE(run.failures == std::vector<std::string>(static_cast<size_t>(form.world_size)));
  CHECK(run.logged("frozen") == std::vector<double>{1, 1, 1, 1});
  CHECK(run.logged("trained")[0] > 0);
  const auto norms = run.logged("norm");
  CHECK(norms[0] == norms[2]);
  CHECK_THAT(norms[3], WithinRel(2 * norms[2], 1e-6));
}
