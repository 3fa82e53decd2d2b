// Recipes written in Lua: a file that returns the table which a TOML file would be.
#pragma once
#include <string>

#include "runner/config/computed_recipe.hpp"

namespace runner::lua {

/// Runs the file in a sandbox of 256 MiB, a hundred million instructions and ten seconds. Besides the libraries it sees
/// `extend "base.toml"` (also a .lua file; relative to this one): the recipe then builds on that file, as with
/// `extends` in TOML, and the call returns what the base says, as a table of its own to compute from. print() goes to
/// the log. Throws RecipeError. Places: key_places.hpp says which are exact.
ComputedRecipe evaluate_recipe(const std::string& file, const BaseReader& read_base);

}  // namespace runner::lua
