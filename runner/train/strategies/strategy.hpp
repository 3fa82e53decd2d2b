// A strategy whose small hooks are functions of a Lua file (script.hpp says which).
#pragma once
#include <memory>

#include "runner/config/recipe.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// Of the file that the recipe's [strategy] names; setup.job.options are its options. Throws RecipeError.
std::unique_ptr<Strategy> make_script_strategy(const Recipe& recipe, StrategySetup setup);

/// The file of the recipe's strategy.ddp_comm_hook; null where that is none. Throws RecipeError.
std::shared_ptr<CommHook> make_script_comm_hook(const Recipe& recipe, World& world);

}  // namespace runner
