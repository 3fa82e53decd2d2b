// Recipes that are computed: what a program says, as TOML and the places where it was written. What evaluates them is
// on a higher floor (runner/lua) and handed in.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

struct ComputedRecipe {
  std::string toml;            ///< one key a line
  std::vector<Origin> places;  ///< of each of its lines, in the program
};

/// What `file` extends, read and merged, as {section: {key: value}}. Throws RecipeError.
using BaseReader = std::function<nlohmann::json(const std::string& base, const Origin& asked_at)>;

/// Evaluates `file`; throws RecipeError where it is wrong itself.
using RecipeEvaluator = std::function<ComputedRecipe(const std::string& file, const BaseReader& read_base)>;

/// {section: {key: value}} as TOML with one key a line; tables below sections get headers of their own. `place` gives
/// the origin of a dotted key or header.
ComputedRecipe write_computed(const nlohmann::json& recipe, const std::function<Origin(const std::string&)>& place);

}  // namespace runner
