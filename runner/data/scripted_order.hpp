// A data set whose samples are in the order that a Lua file decides.
#pragma once
#include <memory>

#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"

namespace runner {

/// `data` in the order of data.order, or unchanged if the recipe has none. Throws RecipeError for a mistake in the file. sample_at()
/// throws LuaError if the script fails, and Error(usage) if it does not return a sample.
std::unique_ptr<Dataset> with_scripted_order(std::unique_ptr<Dataset> data, const Recipe& recipe);

}  // namespace runner
