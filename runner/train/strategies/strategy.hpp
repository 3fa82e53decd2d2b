// Strategies and comm hooks whose functions are in a Lua file (script.hpp lists them).
#pragma once
#include <memory>
#include <string>

#include "runner/config/recipe.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// Makes the strategy of the file in the recipe's [strategy], which learn_script_strategy() has made known; setup.job.options are
/// its options. Throws RecipeError.
std::unique_ptr<Strategy> make_script_strategy(const Recipe& recipe, StrategySetup setup);

/// Makes the comm hook of the recipe's strategy.ddp_comm_hook; null if that is not a Lua file. Throws RecipeError.
std::shared_ptr<Reducer> make_script_comm_hook(const Recipe& recipe, World& world);

}  // namespace runner
