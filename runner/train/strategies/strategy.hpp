// A strategy whose small hooks are functions of a Lua file (script.hpp says which).
#pragma once
#include <memory>
#include <string>

#include "runner/config/recipe.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// Of the file that the recipe's [strategy] names; setup.job.options are its options. Throws RecipeError.
std::unique_ptr<Strategy> make_script_strategy(const Recipe& recipe, StrategySetup setup);

/// Whether its ranks train copies of the model of their own. Checkpoints have rank 0's as the model, and the others' in
/// pieces "replica/NAME" [ranks above 0, elements].
bool replicas_differ(const Strategy& strategy);
std::string replica_piece_name(const std::string& name);
/// The one of a rank above 0.
StateTensor replica_piece(const World& world, const std::string& name, const torch::Tensor& values);

/// The file of the recipe's strategy.ddp_comm_hook; null where that is none. Throws RecipeError.
std::shared_ptr<CommHook> make_script_comm_hook(const Recipe& recipe, World& world);

}  // namespace runner
