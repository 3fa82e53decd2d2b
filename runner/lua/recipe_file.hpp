// Recipes in Lua: files that return a table with the structure of a TOML recipe.
#pragma once
#include <string>

#include "runner/config/computed_recipe.hpp"

namespace runner::lua {

/// Runs the file in a sandbox with limits of 256 MiB, a hundred million instructions and ten seconds. In addition to
/// the libraries, it has `extend "base.toml"` (or a .lua file; relative to this file). The recipe then extends that
/// file, as with `extends` in TOML, and the call returns the base's values in a new table for computations. print()
/// goes to the log. Throws RecipeError. key_places.hpp describes which places are exact.
ComputedRecipe evaluate_recipe(const std::string& file, const BaseReader& read_base);

}  // namespace runner::lua
