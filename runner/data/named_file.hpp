// How a trained model reads a file that the user names.
#pragma once
#include <string>

#include "runner/config/recipe.hpp"

namespace runner {

/// The settings of the training for a file of texts or records, with the format that the name of the file says, if it says one. Of several
/// sources, the settings are those of the first one that can read the file's first record. Of texts with labels, data.columns are those
/// of the training; a Hugging Face folder may not say them, and then the first record does. Throws Error(usage) that begins with
/// "data.validation: " if there is no such file, and if the file has pairs of texts and the training had single texts.
Recipe::Data settings_for_file(const Recipe::Data& training, const std::string& file);

}  // namespace runner
