// The code that a recipe names: libraries and scripts that a run loads, and what they are told.
#pragma once
#include <nlohmann/json.hpp>

#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// {dotted key: value} of the keys that name code, without secret values: plug-ins, hooks with their options, scripts.
nlohmann::json code_of(const Recipe& recipe);

/// Throws Error(usage) if RUN_DIR/resolved.toml, which another node has written, names code that `own`, the recipe of this node, does not.
void refuse_other_code(const Recipe& own, const fs::path& run_dir);

}  // namespace runner
