// How a trained model reads a file that the user names.
#pragma once
#include <string>

#include "runner/config/recipe.hpp"

namespace runner {

/// The settings of the training for a file of texts or records. The name of the file decides its format, if it ends in a known one. With
/// several sources, the settings are those of the first source that can read the file's first record. Texts with labels have the columns
/// of the training. Only where a Hugging Face folder names no columns, the first record decides whether there are pairs of texts.
/// Throws Error(usage) that begins with "data.validation: " if there is no such file; and Error(usage) if the file has pairs of texts and
/// the training had single texts.
Recipe::Data settings_for_file(const Recipe::Data& training, const std::string& file);

}  // namespace runner
