// What the planner has to know about the hooks of a recipe: the memory that they keep, from `memory` in their files.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// Sets `hooks` and `own_loss` of the job. Loads the hook files into a Lua state that `hooks` owns; several threads may call it. It
/// is empty if no hook has `memory`. Throws RecipeError; `hooks` throws Error(usage).
void describe_hooks(const Recipe& recipe, Job& job);

}  // namespace runner
