// The strategies of recipes/strategies_lua that send less than ddp: what they send, and that they converge.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>

#include "tests/support/rank_check.hpp"
#include "tests/support/script_comparison.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinRel;
using nlohmann::json;

TEST_CASE("local SGD that averages after each plain step equals ddp, and converges with fewer averages", "[lua]") {
  at::set_num_threads(1);
  TinyRun run;
  run.world_size = GENERATE(1, 2, 4);
  run.optimizer.kind = OptimizerConfig::Kind::sgd;
  run.optimizer.lr = 0.1;
  INFO(run.world_size << " ranks");
  check_close(train_tiny(like(run, script_run("lua:local_sgd", {{"every", 1}}))).losses, train_tiny(as_ddp(run)).losses,
              1e-4);
  run.optimizer = {.lr = 3e-3, .groups = {}};
  run.steps = 40;
  auto ddp = train_tiny(as_ddp(run)), local = train_tiny(like(run, script_run("lua:local_sgd", {{"every", 4}})));
  double fall = ddp.losses.front() - ddp.losses.back();
  REQUIRE(fall > 0.8);
  CHECK(local.losses.front() - local.losses.back() > 0.8 * fall);
}

TEST_CASE("local SGD's replicas are equal after an average, and differ before it", "[lua]") {
  at::set_num_threads(1);
  TinyRun run = script_run("lua:local_sgd", {{"every", 3}});
  run.world_size = 3;
  std::mutex mutex;
  std::vector<std::vector<torch::Tensor>> models(static_cast<size_t>(run.world_size));
  auto collect = [&](int64_t steps) {
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        for (int64_t step = 0; step < steps; ++step) strategy.step(tiny_input(run, world.rank, step));
        std::vector<torch::Tensor> mine;
        for (const auto& parameter : strategy.parameters()) mine.push_back(parameter.local.clone());
        std::lock_guard lock(mutex);
        models[static_cast<size_t>(world.rank)] = mine;
      });
    });
    bool same = true;
    for (const auto& model : models)
      for (size_t i = 0; i < model.size(); ++i) same = same && torch::equal(model[i], models[0][i]);
    return same;
  };
  CHECK_FALSE(collect(2));
  CHECK(collect(3));
  CHECK_FALSE(collect(4));
}

TEST_CASE("gossip of two ranks with plain steps equals ddp, and gossip of four converges", "[lua]") {
  at::set_num_threads(1);
  TinyRun run;
  run.world_size = 2;
  run.optimizer.kind = OptimizerConfig::Kind::sgd;
  run.optimizer.lr = 0.1;
  check_close(train_tiny(like(run, script_run("lua:gossip"))).losses, train_tiny(as_ddp(run)).losses, 1e-4);
  run.world_size = 4;
  run.optimizer = {.lr = 3e-3, .groups = {}};
  run.steps = 40;
  auto ddp = train_tiny(as_ddp(run)), gossip = train_tiny(like(run, script_run("lua:gossip")));
  double fall = ddp.losses.front() - ddp.losses.back();
  CHECK(gossip.losses.front() - gossip.losses.back() > 0.8 * fall);
}

TEST_CASE("replicas with equal gradients have the same clipping and norm as under ddp", "[lua]") {
  at::set_num_threads(1);
  TinyRun run = GENERATE(script_run("lua:local_sgd", {{"every", 100}}), script_run("lua:gossip"));
  run.world_size = 3;
  run.clip_norm = 0.05;
  auto train = [](const TinyRun& run) {
    TinyResult result;
    std::mutex mutex;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        for (int64_t step = 0; step < run.steps; ++step) {
          auto outcome = strategy.step(tiny_input(run, /*rank=*/0, step));  // the same input on all ranks
          if (world.rank != 0) continue;
          result.losses.push_back(outcome.loss);
          result.norms.push_back(outcome.grad_norm);
        }
      });
    });
    return result;
  };
  auto mine = train(run), ddp = train(as_ddp(run));
  CHECK(ddp.norms[0] > 2 * *run.clip_norm);
  check_close(mine.norms, ddp.norms, 1e-4);
  check_close(mine.losses, ddp.losses, 1e-5);
}

TEST_CASE("top-k that sends everything equals ddp, and a twentieth with error feedback converges", "[lua]") {
  at::set_num_threads(1);
  bool hook = GENERATE(false, true);
  auto topk = [&](double density) {
    json options{{"density", density}};
    return hook ? hook_run("lua:topk", options) : script_run("lua:topk", options);
  };
  TinyRun run;
  run.world_size = GENERATE(1, 3);
  run.precision = GENERATE(as<std::string>(), "32-true", "16-mixed");
  INFO((hook ? "comm hook, " : "strategy, ") << run.world_size << " ranks, " << run.precision);
  check_close(train_tiny(like(run, topk(1.0))).losses, train_tiny(as_ddp(run)).losses,
              run.precision == "32-true" ? 1e-5 : 1e-3);
  if (run.precision != "32-true") return;
  run.optimizer = {.lr = 3e-3, .groups = {}};
  run.steps = 40;
  auto ddp = train_tiny(as_ddp(run)), sparse = train_tiny(like(run, topk(0.05)));
  double fall = ddp.losses.front() - ddp.losses.back();
  CHECK(sparse.losses.front() - sparse.losses.back() > 0.75 * fall);
}

TEST_CASE("error feedback loses no gradient: the sent part and the residual add up", "[lua]") {
  at::set_num_threads(1);
  // With plain SGD at rate 1, parameters change by the sent values. The rest is in the residuals of the ranks.
  TinyRun run = script_run("lua:topk", {{"density", 0.1}});
  run.world_size = 2;
  run.steps = 1;
  run.optimizer.kind = OptimizerConfig::Kind::sgd;
  run.optimizer.lr = 1;
  run.optimizer.weight_decay = 0;
  auto sparse = train_tiny(run), ddp = train_tiny(as_ddp(run));
  const auto& residual = sparse.state.at("lua/residual1");
  double kept = 0, left_out = 0;
  for (float value : residual) kept += value;
  for (const auto& [name, values] : ddp.state)
    if (name.starts_with("param/"))
      for (size_t i = 0; i < values.size(); ++i) left_out += static_cast<double>(sparse.state.at(name)[i]) - values[i];
  CHECK(std::abs(kept) > 1e-4);
  CHECK_THAT(left_out, WithinRel(kept, 1e-3));
}

TEST_CASE("a skipped step does not change the residual of error feedback", "[lua]") {
  at::set_num_threads(1);
  struct Skip : StepObserver {
    bool next = false;
    Decision before_optimizer_step(const Gradients&, double, double lr_factor) override { return {next, lr_factor}; }
  };
  json options{{"density", 0.1}};
  auto run = GENERATE_COPY(script_run("lua:topk", options), hook_run("lua:topk", options));
  INFO(run.strategy);
  run.world_size = 2;
  auto train = [&](const std::vector<int64_t>& batches, int64_t skipped) {
    std::map<std::string, std::vector<float>> state;
    std::mutex mutex;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        Skip skip;
        strategy.observe(&skip);
        for (int64_t batch : batches) {
          skip.next = batch == skipped;
          RANK_CHECK(strategy.step(tiny_input(run, world.rank, batch)).skipped == skip.next);
        }
        collect_state(strategy, state, mutex);
      });
    });
    return state;
  };
  auto state = train({0, 1, 2}, 1);
  CHECK(state.contains("lua/residual1"));
  CHECK(state == train({0, 2}, -1));
}

TEST_CASE("gradients that are not finite do not change the residual of error feedback", "[lua]") {
  at::set_num_threads(1);
  TinyRun run = script_run("lua:topk", {{"density", 0.1}});
  run.world_size = 2;
  run.skip_nonfinite = true;
  auto residual_after = [&](int64_t broken) {
    std::map<std::string, std::vector<float>> state;
    std::mutex mutex;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        for (int64_t step = 0; step < 3; ++step) {
          if (step == 1 && broken < 0) continue;
          if (step == broken && world.rank == 1)  // its loss and gradients are then NaN
            strategy.use_loss([](const torch::Tensor& logits, const torch::Tensor&) { return logits.sum(1) * NAN; });
          RANK_CHECK(strategy.step(tiny_input(run, world.rank, step)).skipped == (step == broken));
          strategy.use_loss({});
        }
        collect_state(strategy, state, mutex);
      });
    });
    return state;
  };
  CHECK(residual_after(1) == residual_after(-1));
}
