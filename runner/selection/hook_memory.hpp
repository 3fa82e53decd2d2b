// What the hooks of a recipe keep, by what their files say (`memory`): for the planner.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// Loads the hook files, in a state that the result keeps; it may be called by several threads. Empty where no hook
/// says what it keeps. Throws RecipeError; the result throws usage errors.
HookMemory hook_memory(const Recipe& recipe);

}  // namespace runner
