// `runner lua check` of a strategy in Lua: what it claims, and a tiny training on two ranks that is resumed once.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

/// Whether a file returns the table of a strategy, or a bare name is a shipped one's. A hook's of that name goes first.
bool is_script_strategy(const std::string& file);

/// Trains under it in a folder of its own; budgets, and options if it is for the file, are those of `recipe_file`, if
/// that is given. Throws RecipeError with what is wrong with the file; what fails in training is said by that, and is
/// its exit code.
ExitCode check_strategy(const std::string& file, const std::string& recipe_file);

}  // namespace runner
