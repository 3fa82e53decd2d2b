// DeepSpeed's configuration files: what one means in a recipe, and the other way round.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/located_json.hpp"

namespace runner {

/// A value that a configuration gives to a recipe's key or, under "strategy.", to an option of `zero`.
struct DeepSpeedValue {
  std::string key;       ///< dotted, of the recipe
  nlohmann::json value;  ///< null: the key must be unset
  Origin place;
  std::string path;         ///< of the configuration
  bool is_default = false;  ///< DeepSpeed's own, because the configuration is silent: anything that is given wins
};

struct DeepSpeedMeaning {
  std::vector<DeepSpeedValue> values;
  std::vector<std::string> notes;  ///< keys that are ignored, and why
  std::vector<Diagnostic> diagnostics;
};

/// `given`: whether the recipe says something about a dotted key itself. Options left to "auto" that follow from the
/// model's width keep that word; see automatic_option().
DeepSpeedMeaning read_deepspeed(const LocatedJson& configuration, const std::function<bool(const std::string&)>& given);

/// What "auto" means for the options that Accelerate fills in from the width of the hidden states; null for others.
nlohmann::json automatic_option(const std::string& option, int64_t dim);

/// The sections of a recipe that say the same, notes as comments. Throws RecipeError.
std::string deepspeed_as_recipe(const LocatedJson& configuration);

/// A recipe whose strategy is `zero`, as a configuration file that means the same. `options`: the strategy's, complete.
/// Throws Error(usage) when the recipe says what such a file has no word for.
std::string recipe_as_deepspeed(const Recipe& recipe, const nlohmann::json& options);

}  // namespace runner
