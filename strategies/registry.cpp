// Makes strategies by name: each executes the plan of its entry in the catalog.
#include "runner/base/error.hpp"
#include "strategies/catalog.hpp"
#include "strategies/executor/executor.hpp"
#include "strategies/hivemind/reducer.hpp"
#include "strategies/reducers/base_reducer.hpp"

namespace runner {

std::unique_ptr<Strategy> make_strategy(const std::string& name, StrategySetup setup) {
  const auto named = find_strategy(name);
  RUNNER_CHECK(named && named->entry->plan, "no strategy `{}`", name);
  auto plan = named->entry->plan(setup.job);
  setup.optimizer.qadam_warmup = plan.reducer.qadam_warmup;
  if (plan.reducer.name == "hivemind")
    setup.reducer = make_hivemind(plan.reducer, setup);
  else if (!plan.reducer.name.empty())
    setup.reducer = make_reducer(setup.world, plan.reducer, setup.job);
  return make_executor(std::move(setup), std::move(plan));
}

}  // namespace runner
