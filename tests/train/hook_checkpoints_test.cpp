// What checkpoints contain of hooks: state, tensors, metrics, and which hooks are disabled.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/hooked_run.hpp"
#include "tests/support/script_runs.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

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
                      ContainsSubstring(fmt::format("the checkpoint contains the training state of each of 3 ranks, "
                                                    "and this run has {}: lua:local_sgd can continue only with",
                                                    ranks)));
  }
  run.tiny.make = nullptr;
  run.tiny.strategy = run.recipe.strategy.name = "ddp";
  run.tiny.options = json::object();
  run.go(run.checkpoint(2));
  REQUIRE(run.events_of("note").size() == 2);
  CHECK(run.events_of("note")[0].at("message") ==
        "each of the checkpoint's 3 ranks had parameters or optimizer state of its own; ddp continues with those of "
        "rank 0");
  CHECK(run.events_of("note")[1].at("message") ==
        "the checkpoint has the state of `lua:local_sgd`, which is not continued");
}

TEST_CASE("hooks read, count and keep parameters that ranks divide, and another mesh continues with them", "[mesh]") {
  const auto hook = R"(return {
    on_train_batch_end = function(ctx, state)
      for i, name in ipairs({"blocks.0.attention.qkv.weight", "blocks.0.mlp.down.weight", "head.norm.weight"}) do
        local parameter = ctx:parameter(name)
        if ctx.step == 2 then state["kept" .. i] = parameter:clone():scale_(2) end
        ctx:log("norm" .. i, parameter:norm(), {sync = "max"})
        if ctx.step >= 2 then ctx:log("kept" .. i, state["kept" .. i]:norm(), {sync = "max"}) end
      end
      if ctx.step == 2 then ctx:checkpoint() end
    end})";
  HookedRun alone({1, "single"}, hook);
  alone.go();
  HookedRun run({4, "fsdp"}, hook);
  run.tiny.tensor = 2;
  run.tiny.accumulation = 2;
  run.go();
  CHECK(run.failures == std::vector<std::string>(4));
  REQUIRE(alone.logged("norm1").size() == 4);
  const auto close = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::ranges::equal(a, b, [](double x, double y) { return std::abs(x - y) < 1e-5 * std::abs(y); });
  };
  for (const std::string i : {"1", "2", "3"}) {
    CHECK(close(run.logged("norm" + i), alone.logged("norm" + i)));
    CHECK(close(run.logged("kept" + i), alone.logged("kept" + i)));
  }
  CHECK(torch::equal(run.tensor(2, "hook/probe/kept1"), 2 * run.tensor(2, "param/blocks.0.attention.qkv.weight")));
  CHECK(torch::equal(run.tensor(2, "hook/probe/kept2"), 2 * run.tensor(2, "param/blocks.0.mlp.down.weight")));
  const auto kept = run.logged("kept1");
  run.tiny.world_size = 3;
  run.tiny.pipeline = 3;
  run.tiny.tensor = 1;
  run.tiny.strategy = "single";
  run.tiny.accumulation = 4;
  run.go(run.checkpoint(2));
  CHECK(run.failures == std::vector<std::string>(3));
  CHECK(close(run.logged("kept1"), {kept.back(), kept.back()}));
  const auto norms = alone.logged("norm2");
  CHECK(close(run.logged("norm2"), {norms[2], norms[3]}));
}
