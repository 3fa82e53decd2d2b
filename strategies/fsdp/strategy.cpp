// `fsdp`: executes its ShardPlan.
#include "strategies/fsdp/strategy.hpp"

#include "strategies/fsdp/entry.hpp"
#include "strategies/sharded/strategy.hpp"

namespace runner {

std::unique_ptr<Strategy> make_fsdp(StrategySetup setup) {
  ShardPlan plan = fsdp_plan(setup.job);
  return make_sharded(std::move(setup), std::move(plan));
}

}  // namespace runner
