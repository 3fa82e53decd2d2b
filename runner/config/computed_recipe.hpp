// Computed recipes: the result of a program as TOML, with the source location of each line. The evaluator is in
// runner/lua, which depends on this library, and is therefore passed in as a function.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

struct ComputedRecipe {
  std::string toml;            ///< one key per line
  std::vector<Origin> places;  ///< for each line of `toml`, its location in the program
};

/// Reads the recipe `base` with everything that it extends, as {section: {key: value}}. `asked_at`: location of the
/// reference. Throws RecipeError.
using BaseReader = std::function<nlohmann::json(const std::string& base, const Origin& asked_at)>;

/// Evaluates `file`. Throws RecipeError if the program fails.
using RecipeEvaluator = std::function<ComputedRecipe(const std::string& file, const BaseReader& read_base)>;

/// Writes {section: {key: value}} as TOML with one key per line. Nested tables get [section.table] headers. `place`
/// returns the origin of a dotted key or header.
ComputedRecipe write_computed(const nlohmann::json& recipe, const std::function<Origin(const std::string&)>& place);

}  // namespace runner
