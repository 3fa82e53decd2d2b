// Where a recipe names its scripts (hooks, strategies), kept beside resolved.toml: what one does wrong in a worker is
// told with the line of the recipe that a person wrote.
#pragma once
#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"

namespace runner::lua {

/// Writes RUN_DIR/hooks.json; nothing where the recipe names none.
void write_hook_places(const Recipe& recipe, const fs::path& run_dir);
/// Gives the keys of a recipe read from RUN_DIR/resolved.toml their places again; nothing where there is no such file.
void restore_hook_places(Recipe& recipe, const fs::path& run_dir);

}  // namespace runner::lua
