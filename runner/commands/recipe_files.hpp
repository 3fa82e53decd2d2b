// The files that a run's recipe was read from. A run keeps its own copy; a resume notes that the files have changed.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// {absolute path: hash of the content} of the recipe's file and of the files that it extends or names in [strategy].
nlohmann::json recipe_files(const Recipe& recipe);

/// The paths in `before`, a value of recipe_files(), whose content has changed since then. Files that no longer exist
/// are not among them. Paths below the working directory are relative.
std::vector<std::string> changed_recipe_files(const nlohmann::json& before);

}  // namespace runner
