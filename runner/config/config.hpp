// The way in and out of recipes: TOML text -> Recipe, Recipe -> TOML, schema and help. No strategy, no torch.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runner/config/computed_recipe.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// Reads `file`, follows `extends`, leaves out what `unset` names, applies `overrides` ("train.max_steps=10",
/// "unset=KEY", in order), expands ${env:NAME}, checks every key against the table and the contradictions that need no
/// knowledge of strategies or devices. Relative data paths become relative to the file that names them. Throws
/// RecipeError with all mistakes in one pass. `check` adds the mistakes that it knows of to the same pass (the
/// catalog's of [strategy]). `evaluate` reads what ends in ".lua", here and in `extends`; without it such a file is
/// refused.
using RecipeCheck = std::function<void(const Recipe& recipe, std::vector<Diagnostic>& diagnostics)>;
Recipe load_recipe(const std::string& file, const std::vector<std::string>& overrides = {},
                   const RecipeCheck& check = {}, const RecipeEvaluator& evaluate = {});

/// The override that removes a key or a section: what --unset means.
std::string unset_override(const std::string& key);

/// The same from text, for tests and for `resolved.toml`; `name` stands in for the file name.
Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides = {});

enum class PrintOrigins { no, yes };
/// The whole recipe as TOML that parses back to the same recipe (unset optional keys left out); with origins as
/// comments.
std::string print_recipe(const Recipe& recipe, PrintOrigins origins = PrintOrigins::no);
/// The same without defaults: what is built on it with another model.name, optimizer.name ... gets the defaults of that
/// one, and no key that is not for it.
std::string print_given(const Recipe& recipe);

/// A JSON value as TOML; tables inline. And a key, quoted where it must be.
std::string toml_value(const nlohmann::json& value);
std::string toml_key(const std::string& name);

/// {section: {key: value}} and {dotted key: "file:line:col" | "--set" | "default" | "decided: why"}, for the ledger and
/// --json.
nlohmann::json recipe_to_json(const Recipe& recipe);
nlohmann::json origins_to_json(const Recipe& recipe);

/// JSON Schema (valid alike for draft 4 and 2020-12) of the key table.
std::string recipe_schema();
/// `runner help recipe`: every key with type, default, bounds and help; or one section or key.
std::string recipe_help(const std::string& topic = "");

}  // namespace runner
