// Origins and texts of a recipe's scripts (hooks, strategies), stored next to resolved.toml. With them, errors of a
// script in a worker show the line of the original recipe, and users can later read what ran.
#pragma once
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"

namespace runner::lua {

/// {path: text} of the recipe's scripts that are not shipped with the program. Files that they `require` are not in it.
nlohmann::json script_texts(const Recipe& recipe);

/// Writes RUN_DIR/hooks.json: {KEY: {file, line, column}, "texts": script_texts()}. Writes nothing if
/// the recipe names no script.
void write_hook_places(const Recipe& recipe, const fs::path& run_dir);
/// Restores the origins of keys in a recipe that was read from RUN_DIR/resolved.toml. Does nothing without that file.
void restore_hook_places(Recipe& recipe, const fs::path& run_dir);

/// Paths of the recipe's scripts whose text differs from RUN_DIR/hooks.json. None without that file.
std::vector<std::string> changed_scripts(const Recipe& recipe, const fs::path& run_dir);

}  // namespace runner::lua
