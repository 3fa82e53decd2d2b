// Checkpoints of Lua strategies: they contain the state, and other strategies can read them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/train/checkpointer.hpp"
#include "tests/support/script_comparison.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

TEST_CASE("a checkpoint contains the state of Lua strategies and comm hooks: a resumed training is bit-equal",
          "[lua]") {
  at::set_num_threads(1);
  struct Case {
    const char* label;
    TinyRun run;
  };
  std::vector<Case> cases = {{"ddp", script_run("lua:ddp")},
                             {"zero1", script_run("lua:zero1", {{"min_numel", 500}})},
                             {"local SGD", script_run("lua:local_sgd", {{"every", 4}})},
                             {"gossip", script_run("lua:gossip")},
                             {"top-k", script_run("lua:topk", {{"density", 0.1}})},
                             {"top-k as a comm hook", hook_run("lua:topk", {{"density", 0.1}})}};
  const auto built_in = [&](const char* hook, json hook_options, json options = json::object()) {
    TinyRun run;
    run.strategy = "ddp";
    options["ddp_comm_hook"] = hook;
    options["ddp_comm_hook_options"] = std::move(hook_options);
    run.options = std::move(options);
    cases.push_back({hook, run});
  };
  for (const char* hook : {"powerSGD_hook", "batched_powerSGD_hook"})
    for (const int start : {0, 5}) built_in(hook, {{"start_powerSGD_iter", start}});
  built_in("powerSGD_hook", {{"start_powerSGD_iter", 1}, {"warm_start", false}});
  built_in("post_localSGD_hook", {{"start_localSGD_iter", 2}, {"post_local_gradient_allreduce", false}},
           {{"model_averaging_period", 3}});
  built_in("noop_hook", json::object());
  for (auto& [label, run] : cases) {
    INFO(label);
    run.world_size = 3;
    run.steps = 7;
    auto whole = train_tiny(run);
    TemporaryFolder folder;
    std::mutex mutex;
    TinyResult resumed;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        for (int64_t step = 0; step < 3; ++step) strategy.step(tiny_input(run, world.rank, step));
        Checkpointer::Options options;
        options.folder = folder.path;
        options.async = false;
        Checkpointer(world, options, {}).save(strategy, 3, {{"strategy", strategy.scalars()}});
      });
    });
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        Checkpoint checkpoint(folder.path / checkpoint_name(3));
        load_state(strategy, checkpoint);
        strategy.load_scalars(checkpoint.state().at("strategy"));
        for (int64_t step = 3; step < run.steps; ++step) {
          auto outcome = strategy.step(tiny_input(run, world.rank, step));
          if (world.rank == 0) resumed.losses.push_back(outcome.loss);
        }
        collect_state(strategy, resumed.state, mutex);
      });
    });
    CHECK(resumed.losses == std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
    CHECK(resumed.state == whole.state);
  }
}

TEST_CASE("a Lua strategy starts from another strategy's checkpoint, and rejects rank-specific state of other ranks",
          "[lua]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  auto save = [&](const TinyRun& run) {
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        strategy.step(tiny_input(run, world.rank, 0));
        Checkpointer::Options options;
        options.folder = folder.path;
        options.async = false;
        Checkpointer(world, options, {}).save(strategy, 1, {{"strategy", strategy.scalars()}});
      });
    });
  };
  auto load = [&](const TinyRun& run) {
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        Checkpoint checkpoint(folder.path / checkpoint_name(1));
        load_state(strategy, checkpoint);
        strategy.load_scalars(checkpoint.state().at("strategy"));
        strategy.step(tiny_input(run, world.rank, 1));
      });
    });
  };
  TinyRun run;
  run.world_size = 2;
  save(as_ddp(run));
  for (const char* name : {"lua:local_sgd", "lua:topk", "lua:gossip"}) CHECK_NOTHROW(load(like(run, script_run(name))));
  fs::remove_all(folder.path / checkpoint_name(1));
  save(like(run, script_run("lua:topk")));
  CHECK_NOTHROW(load(as_ddp(run)));
  TinyRun more = like(run, script_run("lua:topk"));
  more.world_size = 3;
  CHECK_THROWS_WITH(load(more),
                    ContainsSubstring("`lua/residual1` has shape [2, ") && ContainsSubstring("] instead of [3, ") &&
                        ContainsSubstring("(it has values of each rank: continue with the same number of ranks)"));
}
