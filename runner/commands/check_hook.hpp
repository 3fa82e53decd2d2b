// `runner lua check` for a hook: a tiny training on two ranks calls its functions, also after a resume and an error.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

/// Trains with the hook in a temporary folder, and prints its options, the calls of its functions and the metrics that it
/// logs. If `recipe_file` is given, takes the hook's options and the script limits from it. Throws RecipeError for
/// mistakes in the file and its options. If the training fails, it prints the error, and its exit code is returned.
ExitCode check_hook(const std::string& file, const std::string& recipe_file);

}  // namespace runner
