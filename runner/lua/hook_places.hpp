// Where a recipe names its scripts (hooks, strategies), and what they said, kept beside resolved.toml: what one does
// wrong in a worker is told with the line of the recipe that a person wrote, and what ran can be read later.
#pragma once
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"

namespace runner::lua {

/// Writes RUN_DIR/hooks.json, {KEY: {file, line, column}, "texts": {PATH: text of a file of one's own}}; nothing where
/// the recipe names none. What they `require` is not kept.
void write_hook_places(const Recipe& recipe, const fs::path& run_dir);
/// Gives the keys of a recipe read from RUN_DIR/resolved.toml their places again; nothing where there is no such file.
void restore_hook_places(Recipe& recipe, const fs::path& run_dir);

/// Paths of the recipe's scripts that RUN_DIR/hooks.json has with another text; none where there is no such file.
std::vector<std::string> changed_scripts(const Recipe& recipe, const fs::path& run_dir);

}  // namespace runner::lua
