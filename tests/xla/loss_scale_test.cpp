// 16-mixed under XLA: the loss is scaled, overflows are skipped, and an overflow at the smallest scale names a parameter.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "strategies/contract/failure.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

namespace {

TinyRun scaled(const std::string& strategy, int devices, LossScalePolicy policy) {
  TinyRun run;
  run.strategy = strategy;
  run.world_size = devices;
  run.precision = "16-mixed";
  run.n_layers = 1;
  run.make = [strategy, policy](StrategySetup setup) {
    setup.loss_scale = policy;
    return make_strategy(strategy, std::move(setup));
  };
  return run;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return largest;
}

}  // namespace

TEST_CASE("16-mixed trains as 32-true within its rounding, at any scale, with clipping and accumulation",
          "[xla][loss scale]") {
  for (const char* strategy : {"xla", "xla_fsdp"})
    for (const double initial : {65536.0, 16.0}) {
      INFO(strategy << ", " << initial);
      auto run = scaled(strategy, 2, {.initial = initial});
      run.accumulation = 2;
      run.clip_norm = 0.5;  // less than the norms
      run.clip_value = 0.01;
      run.optimizer.kind = OptimizerKind::sgd;  // Adam's update hides a wrong factor
      auto exact = run;
      exact.strategy = "single";
      exact.world_size = 1;
      exact.precision = "32-true";
      exact.make = {};
      const auto found = train_tiny(run), expected = train_tiny(exact);
      for (const double norm : expected.norms) CHECK(norm > 0.5);
      CHECK(relative_difference(found.losses, expected.losses) < 2e-3);
      CHECK(relative_difference(found.norms, expected.norms) < 1e-2);
      double error = 0;
      for (const auto& [name, values] : expected.state)
        for (size_t i = 0; i < values.size(); ++i)
          error = std::max(error, std::abs(double{found.state.at(name)[i]} - values[i]));
      CHECK(error < 1e-4);
    }
}

TEST_CASE("an overflow changes nothing, and the second one halves the scale", "[xla][loss scale]") {
  const auto run = scaled("xla_fsdp", 2, {.initial = 0x1p30, .hysteresis = 2});
  std::vector<StepResult> results;
  bool unchanged = true;
  run_ranks(2, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      std::vector<torch::Tensor> before;
      for (const auto& tensor : strategy.state()) before.push_back(tensor.local.clone());
      for (int64_t step = 0; step < 4; ++step) {
        const auto result = strategy.step(tiny_input(run, world.rank, step));
        if (world.rank == 0) results.push_back(result);
      }
      const auto after = strategy.state();
      for (size_t i = 0; world.rank == 0 && i < after.size(); ++i)
        unchanged = unchanged && after[i].local.equal(before[i]);
    });
  });
  CHECK(unchanged);
  std::vector<double> scales;
  for (const auto& result : results) {
    CHECK((result.skipped && result.rescaled && result.finite));
    scales.push_back(result.loss_scale);
  }
  CHECK(scales == std::vector<double>{0x1p30, 0x1p30, 0x1p29, 0x1p28});
}

TEST_CASE("an overflow at the smallest scale names the parameter on each device", "[xla][loss scale]") {
  const auto run = scaled("xla", 2, {.initial = 0x1p30, .minimum = 0x1p30});
  std::vector<std::string> texts(2);
  run_ranks(2, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      try {
        strategy.step(tiny_input(run, world.rank, 0));
      } catch (const NonFiniteError& error) {
        texts[static_cast<size_t>(world.rank)] = error.what();
      }
    });
  });
  CHECK(texts[0] == texts[1]);
  CHECK_THAT(texts[0], Catch::Matchers::ContainsSubstring(
                           "gradients overflow although the loss scale is at its minimum of 1073741824: the first "
                           "non-finite one is that of "));
}

}  // namespace runner::testing
