// `zero`: executes its ShardPlan.
#include "strategies/zero/strategy.hpp"

#include "strategies/sharded/strategy.hpp"
#include "strategies/zero/entry.hpp"

namespace runner {

std::unique_ptr<Strategy> make_zero(StrategySetup setup) {
  ShardPlan plan = zero_plan(setup.job);
  setup.loss_scale = zero_loss_scale(setup.job);
  return make_sharded(std::move(setup), std::move(plan));
}

}  // namespace runner
