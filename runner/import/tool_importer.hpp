// Translates the configuration files of other training tools by their tables of names (schemas/names).
#pragma once
#include <string>
#include <vector>

#include "runner/config/config.hpp"
#include "runner/config/located_json.hpp"

namespace runner {

/// Reads one document whose top level is a mapping. Plain words are read as PyYAML reads them, and 1e-4 is a number. An alias is a copy of
/// its anchor; a merge key (<<) adds what the mapping lacks. Throws RecipeError at the first mistake: syntax, a key that occurs twice,
/// more than 100 levels, more than 20,000 values (with the copies of aliases). `name`: file name in locations.
LocatedJson parse_located_yaml(const std::string& text, const std::string& name);

/// The tools: huggingface, axolotl, llamafactory, torchtitan, lightning.
std::vector<std::string> configuration_tools();

/// Reads a file of at most 1 MiB by its suffix: .json, .toml, .yaml or .yml. Throws RecipeError at the first mistake, and Error(usage)
/// for another suffix or a larger file. `is_json`: whatever its suffix.
LocatedJson read_configuration(const std::string& file, bool is_json = false);

/// The tool whose names the configuration has most of, or "deepspeed"; empty if it has few names of any.
std::string tool_of(const LocatedJson& configuration);

/// The configuration as sections of a recipe. What is not translated is in comments above them, each with its place and the reason.
/// `check`: gets a recipe with what is translated, and adds the mistakes in [strategy], which is then not translated.
std::string tool_as_recipe(const std::string& tool, const LocatedJson& configuration, const RecipeCheck& check = {});

}  // namespace runner
