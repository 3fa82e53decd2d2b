// The norm of a step's gradients does not depend on how they are sharded.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

TEST_CASE("the norm of a large matrix is the same under single, ddp and fsdp", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = "mlp";
  run.features = run.dim = 4096;
  run.n_layers = 1;
  run.vocab = 10;
  run.steps = 1;
  run.optimizer = {.kind = OptimizerKind::sgd, .groups = {}};
  const auto norm_of_step = [&](const std::string& strategy) {
    run.strategy = strategy;
    run.world_size = strategy == "single" ? 1 : 2;
    double norm = 0;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& of_rank) {
        const double own = of_rank.step(tiny_input(run, world.rank, 0)).grad_norm;
        if (world.rank == 0) norm = own;
      });
    });
    return norm;
  };
  const double single = norm_of_step("single");
  for (const std::string strategy : {"ddp", "fsdp"})
    CHECK_THAT(norm_of_step(strategy), Catch::Matchers::WithinRel(single, 1e-6));
  run.precision = "64-true";
  CHECK_THAT(single, Catch::Matchers::WithinRel(norm_of_step("single"), 1e-5));
}
