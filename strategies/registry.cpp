// Makes strategies by name: each executes the plan of its entry in the catalog.
#include "runner/base/error.hpp"
#include "strategies/catalog.hpp"
#include "strategies/executor/executor.hpp"
#include "strategies/hivemind/reducer.hpp"
#include "strategies/reducers/base_reducer.hpp"
#include "strategies/xla/account.hpp"
#include "strategies/xla/strategy.hpp"

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
  if (plan.compiled) return make_compiled(std::move(setup), std::move(plan));
  return make_executor(std::move(setup), std::move(plan));
}

#ifndef RUNNER_HAS_XLA
static Error without_xla() {
  return environment_error("this program was built without XLA; run scripts/setup --xla and build it again");
}
std::unique_ptr<Strategy> make_compiled(StrategySetup, ParallelPlan) { throw without_xla(); }
StepAccount account_of_step(Model&, const Job&, const ParallelPlan&, const OptimizerConfig&, std::optional<double>,
                            std::optional<double>) {
  throw without_xla();
}
#endif

}  // namespace runner
