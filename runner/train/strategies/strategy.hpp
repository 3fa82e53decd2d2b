// A strategy whose hooks are functions of a Lua file (script.hpp lists them).
#pragma once
#include <memory>
#include <string>

#include "runner/config/recipe.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// Makes the strategy of the file in the recipe's [strategy]; setup.job.options are its options. Throws RecipeError.
std::unique_ptr<Strategy> make_script_strategy(const Recipe& recipe, StrategySetup setup);

/// Whether each rank trains a different replica of the model. Checkpoints contain rank 0's as the model, and the others
/// as pieces "replica/NAME" of shape [ranks above 0, elements].
bool replicas_differ(const Strategy& strategy);
std::string replica_piece_name(const std::string& name);
/// The piece of a rank above 0.
StateTensor replica_piece(const World& world, const std::string& name, const torch::Tensor& values);

/// Makes the comm hook of the recipe's strategy.ddp_comm_hook; null if that is not a Lua file. Throws RecipeError.
std::shared_ptr<CommHook> make_script_comm_hook(const Recipe& recipe, World& world);

}  // namespace runner
