// The function `setup_optimizer` of a strategy in Lua, which changes [optimizer] before the optimizer is made.
//
// The argument is a list of groups. First those of optimizer.groups: {params, lr or lr_factor, weight_decay}, and `name` and options of an
// optimizer of their own where the recipe sets them. The last one has no `params` and is for all other parameters: {lr, weight_decay}, and
// the keys of [optimizer] that this optimizer reads, such as betas and eps. The function changes the list, or returns another one. It
// cannot change what a step of a parameter costs (name, momentum, ns_steps).
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// The recipe with the groups that the function makes; the same recipe without the function. `options`: of the strategy. Throws RecipeError
/// if the groups are wrong or contradict the rest of the recipe, and Error(usage) if the function fails.
Recipe with_script_optimizer(const Recipe& recipe, const Entry& entry, const nlohmann::json& options,
                             const ModelSpec& model);

}  // namespace runner
