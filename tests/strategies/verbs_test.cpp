// The verbs of a strategy (reduce, all_gather, broadcast, barrier), over all ranks and on a single one.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

TEST_CASE("reduce, all_gather, broadcast and barrier involve all ranks", "[verbs]") {
  TinyRun run;
  run.strategy = "ddp";
  run.world_size = GENERATE(1, 3);
  std::atomic<int> passed{0};
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      auto mine = torch::full({2, 3}, world.rank + 1, torch::kInt64);
      auto sum = strategy.reduce(mine.clone()), most = strategy.reduce(mine.clone(), c10d::ReduceOp::MAX);
      auto all = strategy.all_gather(mine.t());
      auto last = strategy.broadcast(mine.clone(), run.world_size - 1);
      strategy.barrier();
      RANK_CHECK(torch::equal(sum, torch::full({2, 3}, run.world_size * (run.world_size + 1) / 2, torch::kInt64)));
      RANK_CHECK(torch::equal(most, torch::full({2, 3}, run.world_size, torch::kInt64)));
      RANK_CHECK(torch::equal(last, torch::full({2, 3}, run.world_size, torch::kInt64)));
      RANK_CHECK(all.sizes() == at::IntArrayRef({run.world_size, 3, 2}));
      for (int rank = 0; rank < run.world_size; ++rank)
        RANK_CHECK(torch::equal(all[rank], torch::full({3, 2}, rank + 1, torch::kInt64)));
      ++passed;
    });
  });
  CHECK(passed == run.world_size);
}
