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
    std::string label;
    TinyRun run;
  };
  // The functions of extensions keep something, and what they do depends on it.
  const auto keeping = [](const std::string& base) {
    return "return {base = '" + base + R"(',
      setup = function(ctx) ctx:kept("sum", 3) end,
      setup_module = function(model) model:parameter("embedding.tokens.weight"):scale_(0.5) end,
      after_update = function(ctx, state)
        state.n = (state.n or 0) + 1
        local sum = ctx:kept("sum"):add_(state.n)
        ctx.model:parameter("embedding.tokens.weight"):scale_(1 - 1 / (10 + sum:max()))
      end})";
  };
  Script of_ddp(keeping("ddp")), of_fsdp(keeping("fsdp")), of_zero1(keeping("deepspeed_stage_1")),
      of_zero3(keeping("deepspeed_stage_3"));
  std::vector<Case> cases = {{"ddp", script_run("lua:ddp")},
                             {"zero1", script_run("lua:zero1", {{"min_numel", 500}})},
                             {"local SGD", script_run("lua:local_sgd", {{"every", 4}})},
                             {"gossip", script_run("lua:gossip")},
                             {"top-k", script_run("lua:topk", {{"density", 0.1}})},
                             {"top-k as a comm hook", hook_run("lua:topk", {{"density", 0.1}})},
                             {"extended ddp", script_run(of_ddp.name())},
                             {"extended fsdp", script_run(of_fsdp.name())},
                             {"extended ZeRO 1", script_run(of_zero1.name())},
                             {"extended ZeRO 3", script_run(of_zero3.name())}};
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
  const auto of_strategy = [&](const char* strategy, json options, int local_size = 0) {
    TinyRun run;
    run.strategy = strategy;
    run.world_size = 4;  // Adasum needs a power of two, and pairs an even number
    run.local_size = local_size;
    if (options.value("algorithm", "") == "qadam") run.optimizer.kind = OptimizerConfig::Kind::adam;
    cases.push_back({options.dump(), run});
    cases.back().run.options = std::move(options);
  };
  for (const bool hierarchical : {false, true}) {
    const int local_size = hierarchical ? 2 : 0;
    of_strategy("horovod", {{"op", "adasum"}, {"hierarchical", hierarchical}}, local_size);
    of_strategy("bagua", {{"algorithm", "qadam"}, {"warmup_steps", 2}, {"hierarchical", hierarchical}}, local_size);
    of_strategy("bagua", {{"algorithm", "qadam"}, {"warmup_steps", 5}, {"hierarchical", hierarchical}}, local_size);
    for (const char* algorithm : {"bytegrad", "decentralized", "low_precision_decentralized"})
      of_strategy("bagua",
                  {{"algorithm", algorithm}, {"hierarchical", hierarchical}, {"peer_selection_mode", "shift_one"}},
                  local_size);
  }
  for (auto& [label, run] : cases) {
    INFO(label);
    if (run.world_size == 1) run.world_size = 3;
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

TEST_CASE("low_precision_decentralized that starts from other replicas knows what its neighbours have") {
  at::set_num_threads(1);
  TinyRun before, after;
  before.strategy = after.strategy = "bagua";
  before.world_size = GENERATE(1, 4);
  const std::string algorithm = GENERATE("low_precision_decentralized", "decentralized");
  // On one node rank 0 publishes alone.
  before.options = {
      {"algorithm", algorithm}, {"hierarchical", algorithm != "decentralized"}, {"communication_interval", 3}};
  after.options = {{"algorithm", "low_precision_decentralized"}, {"hierarchical", false}};
  after.world_size = 4;
  INFO(algorithm << " on " << before.world_size << " ranks");
  TemporaryFolder folder;
  run_ranks(before.world_size, [&](World& world) {
    with_strategy(before, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < 2; ++step) strategy.step(tiny_input(before, world.rank, step));
      Checkpointer::Options options;
      options.folder = folder.path;
      options.async = false;
      Checkpointer(world, options, {}).save(strategy, 2, {{"strategy", strategy.scalars()}});
    });
  });
  std::mutex mutex;
  std::map<std::string, std::vector<float>> state;
  run_ranks(after.world_size, [&](World& world) {
    with_strategy(after, world, [&](Strategy& strategy) {
      Checkpoint checkpoint(folder.path / checkpoint_name(2));
      load_state(strategy, checkpoint);
      strategy.load_scalars(checkpoint.state().at("strategy"));
      for (int64_t step = 2; step < 5; ++step) strategy.step(tiny_input(after, world.rank, step));
      collect_state(strategy, state, mutex);
    });
  });
  const auto row = [&](const std::string& name, size_t rank) {
    const auto& all = state.at("reducer/" + name);
    const auto each = static_cast<ptrdiff_t>(all.size() / 4), first = static_cast<ptrdiff_t>(rank) * each;
    return std::vector<float>(all.begin() + first, all.begin() + first + each);
  };
  for (size_t rank = 0; rank < 4; ++rank) {
    CHECK(row("left/0", rank) == row("published/0", (rank + 3) % 4));
    CHECK(row("right/0", rank) == row("published/0", (rank + 1) % 4));
  }
  CHECK(row("published/0", 0) != row("published/0", 1));
}

TEST_CASE("state of another strategy, hook or number of ranks is left out, with a note", "[lua]") {
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
  std::vector<std::string> said;
  auto load = [&](const TinyRun& run) {
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        Checkpoint checkpoint(folder.path / checkpoint_name(1));
        const auto notes = load_state(strategy, checkpoint);
        if (world.rank == 0) said = notes;
        strategy.load_scalars(checkpoint.state().at("strategy"));
        strategy.step(tiny_input(run, world.rank, 1));
      });
    });
  };
  TinyRun run;
  run.world_size = 2;
  save(as_ddp(run));
  for (const char* name : {"lua:local_sgd", "lua:topk", "lua:gossip"}) {
    CHECK_NOTHROW(load(like(run, script_run(name))));
    CHECK(said.empty());
  }
  fs::remove_all(folder.path / checkpoint_name(1));
  save(like(run, script_run("lua:topk")));
  using Notes = std::vector<std::string>;
  CHECK_NOTHROW(load(as_ddp(run)));
  CHECK(said == Notes{"the checkpoint has the state of `lua:topk`, which is not continued"});
  TinyRun more = like(run, script_run("lua:topk"));
  more.world_size = 3;
  CHECK_NOTHROW(load(more));
  CHECK(said == Notes{"`lua:topk` had values of each of 2 ranks, and this run has 3: they start anew"});
  TinyRun hooked = as_ddp(run);
  hooked.options = {{"ddp_comm_hook", "powerSGD_hook"}, {"ddp_comm_hook_options", {{"start_powerSGD_iter", 2}}}};
  CHECK_NOTHROW(load(hooked));
  CHECK(said ==
        Notes{"the checkpoint has the state of `lua:topk`, which is not continued: `powerSGD_hook` starts anew"});
  CHECK_NOTHROW(load(like(run, script_run("lua:local_sgd"))));
  fs::remove_all(folder.path / checkpoint_name(1));
  save(hooked);
  CHECK_NOTHROW(load(like(run, script_run("lua:topk"))));
  CHECK(said ==
        Notes{"the checkpoint has the state of `powerSGD_hook`, which is not continued: `lua:topk` starts anew"});
  hooked.options["ddp_comm_hook_options"]["matrix_approximation_rank"] = 2;
  CHECK_THROWS_WITH(load(hooked), ContainsSubstring("(options of `powerSGD_hook`, bucket_cap_mb or model.frozen have "
                                                    "changed, or it is another build: set them as before)"));
}
