// `runner lua check` for a strategy in Lua: shows its predicted costs and runs a tiny training on two ranks, resumed once.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

/// Whether a file returns the table of a strategy, or a bare name is that of a shipped strategy and not of a shipped hook.
bool is_script_strategy(const std::string& file);

/// Trains with the strategy in a temporary folder. If `recipe_file` is given, takes the script limits from it, and the
/// strategy's options if that recipe uses the same strategy. Throws RecipeError for mistakes in the file. If the training
/// fails, it prints the error, and its exit code is returned.
ExitCode check_strategy(const std::string& file, const std::string& recipe_file);

}  // namespace runner
