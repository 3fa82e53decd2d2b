// Reads and prints recipes: TOML -> Recipe; Recipe -> TOML and JSON; schema and help. Independent of strategies and of
// torch.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/config/computed_recipe.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/importer.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

struct ReaderHelp {
  RecipeEvaluator evaluate = {};       ///< evaluates files that end in ".lua"; without it, such a file is a mistake
  const Importer* importer = nullptr;  ///< of the configurations in strategy.config
  FindName names = nullptr;            ///< what strategies and importers know in addition to find_foreign_name()
};

/// Reads `file` and the recipes that it extends, removes the keys in `unset`, applies `overrides`
/// ("train.max_steps=10", "unset=KEY"), which are one layer without an order, and expands ${env:NAME}. Checks every key
/// against the table, and finds the contradictions that need no knowledge of strategies or devices. Relative paths are
/// resolved against the folder of the file that contains them. Throws RecipeError with all mistakes at once. `check`
/// may add mistakes (the catalog's, about [strategy]). `help`: functions and names of libraries that this one cannot
/// include.
using RecipeCheck = std::function<void(const Recipe& recipe, std::vector<Diagnostic>& diagnostics)>;
Recipe load_recipe(const std::string& file, const std::vector<std::string>& overrides = {},
                   const RecipeCheck& check = {}, const ReaderHelp& help = {});

/// Overrides of several commands. Each command is a layer over those before it.
using OverrideLayers = std::vector<std::vector<std::string>>;
Recipe load_layered_recipe(const std::string& file, const OverrideLayers& overrides, const RecipeCheck& check = {},
                           const ReaderHelp& help = {});

/// The override that removes a key or a section; --unset uses it.
std::string unset_override(const std::string& key);

/// Like load_recipe(), but from text. `name` is used as the file name.
Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides = {},
                    const ReaderHelp& help = {});

enum class PrintOrigins { no, yes };
/// The recipe with all defaults, as TOML that parses back to the same recipe. Unset optional keys are omitted.
/// PrintOrigins::yes: with the origin of each value as a comment.
std::string print_recipe(const Recipe& recipe, PrintOrigins origins = PrintOrigins::no);
/// Like print_recipe(), but without defaults. A recipe that extends this text with another model.name or optimizer.name
/// gets the defaults of that name, and no keys that do not apply to it.
std::string print_given(const Recipe& recipe);

/// A JSON value as TOML. Tables are written inline.
std::string toml_value(const nlohmann::json& value);
/// A key as TOML, quoted if necessary.
std::string toml_key(const std::string& name);

/// {section: {key: value}} and {dotted key: "file:line:col" | "--set" | "default" | "decided: why"}, for the ledger and
/// --json.
nlohmann::json recipe_to_json(const Recipe& recipe);
nlohmann::json origins_to_json(const Recipe& recipe);

/// JSON Schema (valid alike for draft 4 and 2020-12) of the key table.
std::string recipe_schema();
/// `runner help recipe`: every key with type, default, bounds and help; or one section or key. `names`: see key_meant_by().
std::string recipe_help(const std::string& topic = "", FindName names = nullptr);

}  // namespace runner
