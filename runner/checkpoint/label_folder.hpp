// The facts in a Hugging Face folder about a model of labels or numbers in addition to [model]: its loss, its classes or columns, and
// how its inputs are read.
#pragma once
#include <nlohmann/json.hpp>

#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// Fills in train.loss and [data] from config.json and, for images, preprocessor_config.json. Returns what data sets call learned
/// (Dataset::learned()). Throws Error(usage) with the folder if it does not say how to read inputs.
nlohmann::json take_label_folder(const fs::path& folder, const nlohmann::json& config, Recipe& recipe);

/// The entries of config.json that take_label_folder() reads. `learned`: of the training data.
nlohmann::json label_folder_config(const Recipe& recipe, const nlohmann::json& learned);

}  // namespace runner
