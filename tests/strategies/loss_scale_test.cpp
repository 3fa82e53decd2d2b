// 16-mixed: overflows are skipped, an overflow at the smallest scale names a parameter, clipping by value accepts any
// bound, and a run that changes to 16-mixed starts with its initial scale.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/failure.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

TinyRun overflowing() {
  TinyRun run;
  run.strategy = "zero";
  run.world_size = 2;
  run.precision = "16-mixed";
  run.options = {{"initial_scale_power", 30}, {"hysteresis", 2}};
  return run;
}

/// What each rank throws if the scale cannot become smaller.
std::vector<std::string> texts_at_floor(TinyRun run) {
  run.options["min_loss_scale"] = 0x1p29;
  std::vector<std::string> texts(static_cast<size_t>(run.world_size));
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      try {
        for (int64_t step = 0; step < 4; ++step) strategy.step(tiny_input(run, world.rank, step));
      } catch (const NonFiniteError& error) {
        texts[static_cast<size_t>(world.rank)] = error.what();
      }
    });
  });
  return texts;
}

}  // namespace

TEST_CASE("an overflow is skipped, and the second one halves the scale", "[loss scale]") {
  at::set_num_threads(1);
  TinyRun run = overflowing();
  std::vector<std::vector<StepResult>> results(2);
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < 4; ++step)
        results[static_cast<size_t>(world.rank)].push_back(strategy.step(tiny_input(run, world.rank, step)));
    });
  });
  for (const auto& rank : results) {
    std::vector<double> scales;
    for (const auto& result : rank) {
      CHECK(result.skipped);
      CHECK(result.finite);  // handled by the loss scale
      scales.push_back(result.loss_scale);
    }
    CHECK(scales == std::vector<double>{0x1p30, 0x1p30, 0x1p29, 0x1p28});
  }
}

TEST_CASE("a NaN loss is a failure, or skipped on request, and does not change the scale", "[loss scale]") {
  at::set_num_threads(1);
  TinyRun run;
  run.precision = "16-mixed";
  run.skip_nonfinite = GENERATE(false, true);
  run.strategy = GENERATE(as<std::string>(), "single", "ddp", "zero");
  run.world_size = run.strategy == "single" ? 1 : 2;
  std::vector<StepResult> results(2);
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (const auto& tensor : strategy.state())
        if (tensor.name == "param/head.norm.weight" && tensor.numel() > 0)
          tensor.write(0, torch::full({tensor.numel()}, NAN));
      strategy.state_loaded();
      strategy.step(tiny_input(run, world.rank, 0));
      auto result = strategy.step(tiny_input(run, world.rank, 1));
      if (world.rank == 0) results = {result};
    });
  });
  CHECK(std::isnan(results[0].loss));
  CHECK(results[0].skipped);
  CHECK(results[0].finite == run.skip_nonfinite);
  CHECK(results[0].loss_scale == 65536);
}

TEST_CASE("an overflow at the smallest scale names the first parameter, equally on every rank", "[loss scale]") {
  at::set_num_threads(1);
  const auto texts = texts_at_floor(overflowing());
  CHECK(texts[0] == texts[1]);
  CHECK_THAT(texts[0],
             ContainsSubstring("gradients overflow although the loss scale is at its minimum of 536870912: the "
                               "first non-finite one is that of "));
}

TEST_CASE("an overflow at the smallest scale names the same parameter on every mesh", "[loss scale]") {
  at::set_num_threads(1);
  TinyRun run = overflowing();
  run.frozen = {"embedding.*", "blocks.0.*"};
  run.tied = false;
  const auto expected = texts_at_floor(run);
  CHECK_THAT(expected[0], ContainsSubstring("that of blocks.1."));
  run.options["stage"] = 1;
  run.pipeline = 2;
  for (const int tensor : {1, 2}) {
    run.tensor = tensor;
    run.world_size = 2 * tensor;
    for (const auto& text : texts_at_floor(run)) CHECK(text == expected[0]);
  }
}

TEST_CASE("gradients that are never finite end the run under every strategy", "[loss scale]") {
  at::set_num_threads(1);
  TinyRun run;
  run.precision = "16-mixed";
  run.strategy = GENERATE(as<std::string>(), "single", "ddp", "fsdp");
  run.world_size = run.strategy == "single" ? 1 : 2;
  run.seq_len = 4;
  run.n_layers = 1;
  INFO(run.strategy);
  // The loss is finite, but its gradient is not: the derivative of the square root at 0 is infinite.
  TokenLoss rough = [](const torch::Tensor& logits, const torch::Tensor& targets) {
    return at::cross_entropy_loss(logits, targets, {}, at::Reduction::None) + (logits.select(1, 0) * 0).abs().sqrt();
  };
  std::vector<std::string> texts(2);
  std::vector<int64_t> steps(2);
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      strategy.use_loss(rough);
      auto& step = steps[static_cast<size_t>(world.rank)];
      try {
        for (; step < 100; ++step) strategy.step(tiny_input(run, world.rank, step));
      } catch (const NonFiniteError& error) {
        texts[static_cast<size_t>(world.rank)] = error.what();
      }
    });
  });
  for (int rank = 0; rank < run.world_size; ++rank) {
    CHECK(steps[static_cast<size_t>(rank)] == 30);  // 2^16 to 2^-14
    CHECK_THAT(texts[static_cast<size_t>(rank)],
               ContainsSubstring("gradients overflow although the loss scale is at its minimum of 6.103515625e-05"));
  }
}

TEST_CASE("clipping by value accepts bounds beyond fp16's range, and clips values in it", "[loss scale]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "zero";
  run.world_size = 2;
  run.precision = "16-mixed";
  run.options = {{"stage", GENERATE(1, 2, 3)}};
  auto unclipped = train_tiny(run);
  run.clip_value = 2.0;  // times the scale of 65536, it exceeds fp16's range
  CHECK(train_tiny(run).state == unclipped.state);
  run.clip_value = 0x1p-10;
  auto zero = train_tiny(run);
  CHECK(zero.state != unclipped.state);
  run.strategy = "fsdp";  // with the same sums in fp32
  run.options = {{"mixed_precision", {{"reduce_dtype", "float16"}}}};
  CHECK(train_tiny(run).state == zero.state);
}

TEST_CASE("a run that changes to 16-mixed starts with that precision's loss scale", "[loss scale]") {
  at::set_num_threads(1);
  TinyRun run;
  std::string before = GENERATE(as<std::string>(), "32-true", "bf16-mixed", "16-mixed");
  nlohmann::json scalars;
  double scale = 0;
  run.precision = before;
  run_ranks(1, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      strategy.step(tiny_input(run, 0, 0));
      scalars = strategy.scalars();
    });
  });
  if (before == "16-mixed") scalars["loss_scaler"]["scale"] = 8.0;
  run.precision = "16-mixed";
  run_ranks(1, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      strategy.load_scalars(scalars);
      scale = strategy.step(tiny_input(run, 0, 1)).loss_scale;
    });
  });
  CHECK(scale == (before == "16-mixed" ? 8.0 : 65536.0));
}
