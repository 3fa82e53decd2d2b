// Families with windows, soft caps, norms after the branches or a parallel residual train alike under every strategy.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

TEST_CASE("families train alike under single, ddp, fsdp and zero", "[parity][families]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gemma2", "gemma3", "gpt_neox", "olmo2", "granite", "roberta");
  run.recompute = GENERATE(false, true);
  run.tied = run.family.starts_with("gemma") || run.family == "roberta";
  run.packed = run.family == "roberta";
  run.n_layers = 2;
  run.steps = 3;
  run.optimizer.lr = 1e-3;
  INFO(run.family << ", recompute " << run.recompute);
  const auto single = train_tiny(run);
  run.world_size = 2;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  REQUIRE(ddp.losses.size() == single.losses.size());
  for (size_t i = 0; i < ddp.losses.size(); ++i)
    CHECK_THAT(ddp.losses[i], Catch::Matchers::WithinRel(single.losses[i], 1e-5));
  run.strategy = "fsdp";
  run.options = {{"sharding_strategy", "FULL_SHARD"}};
  check_equal(train_tiny(run), ddp);
  run.strategy = "zero";
  for (int stage : {1, 3}) {
    run.options = {{"stage", stage}};
    check_equal(train_tiny(run), ddp);
  }
}

TEST_CASE("recomputation gives each family the same losses", "[recompute][families]") {
  at::set_num_threads(1);
  for (const auto& family : model_families()) {
    if (family == "gpt" || family == "llama") continue;
    TinyRun run;
    run.family = family;
    run.tied = family_kind(family) == "encoder";
    run.n_layers = 2;
    run.steps = 2;
    INFO(family);
    const auto kept = train_tiny(run);
    run.recompute = true;
    check_equal(train_tiny(run), kept);
  }
}
