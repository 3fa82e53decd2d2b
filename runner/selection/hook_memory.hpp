// The memory that the hooks of a recipe keep, from `memory` in their files, for the planner.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// Loads the hook files into a Lua state that the result owns. Several threads may call the result. It is empty if no hook has
/// `memory`. Throws RecipeError; the result throws Error(usage).
HookMemory hook_memory(const Recipe& recipe);

}  // namespace runner
