// `runner lua check`: a tiny training on two ranks calls the functions of a hook or of a strategy, also after a resume and an error.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

/// Trains with the script in a temporary folder, and prints its options, the calls of a hook and the metrics that it logs, or the predicted
/// costs of a strategy. If `recipe_file` is given, takes the options and the script limits from it, and model.loss_chunk_tokens for a hook.
/// Throws RecipeError for mistakes in the file and its options. If the training fails, it prints the error, and its exit code is returned.
ExitCode check_script(const std::string& file, const std::string& recipe_file);

}  // namespace runner
