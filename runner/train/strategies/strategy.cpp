#include "runner/train/strategies/strategy.hpp"

#include "runner/selection/comm_hook_options.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/train/strategies/script.hpp"

namespace runner {

std::unique_ptr<Strategy> make_script_strategy(const Recipe& recipe, StrategySetup setup) {
  auto script =
      std::make_shared<StrategyScript>(StrategyScript::Kind::strategy, recipe, setup.world, setup.job.options);
  if (script->reduces())
    setup.reducer = std::move(script);
  else if (script->acts())
    setup.extension = std::move(script);
  return make_strategy(recipe.strategy.name, std::move(setup));
}

std::shared_ptr<Reducer> make_script_comm_hook(const Recipe& recipe, World& world) {
  if (!has_script_hook(recipe.strategy.options)) return nullptr;
  std::vector<Diagnostic> diagnostics;
  auto options = comm_hook_options(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  return std::make_shared<StrategyScript>(StrategyScript::Kind::comm_hook, recipe, world, std::move(options));
}

}  // namespace runner
