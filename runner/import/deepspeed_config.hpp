// Translates DeepSpeed's configuration files to recipes, and recipes to such files.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/importer.hpp"
#include "runner/config/located_json.hpp"

namespace runner {

/// `given`: whether the recipe itself sets a dotted key. Options that are "auto" and depend on the model's width remain "auto";
/// see automatic_option().
Imported read_deepspeed(const LocatedJson& configuration, const std::function<bool(const std::string&)>& given);

/// The value of "auto" for options that Accelerate computes from the width of the hidden states, `dim`; null for other options.
nlohmann::json automatic_option(const std::string& option, int64_t dim);

/// The importer for the reader of recipes.
const Importer& deepspeed_importer();
/// Finds an argument that strategies have in other tools, or a key of DeepSpeed's configurations: what it means in a recipe.
const ForeignName* find_argument(const std::string& name);
/// The error for a configuration whose strategy does not take it.
extern const char* const deepspeed_needed;

/// The equivalent sections of a recipe, with the notes as comments. Throws RecipeError. `check`: gets a recipe with the
/// options of the strategy, and adds their mistakes.
std::string deepspeed_as_recipe(const LocatedJson& configuration, const RecipeCheck& check = {});

/// A recipe whose strategy is `zero`, as the equivalent configuration file. Values that the recipe leaves open are
/// "auto", and batch sizes that DeepSpeed derives are left out. `options`: of the strategy, with defaults. Throws
/// Error(usage) if the recipe has a value that such a file cannot express.
std::string recipe_as_deepspeed(const Recipe& recipe, const nlohmann::json& options);

}  // namespace runner
