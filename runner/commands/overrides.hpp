// The options --set and --unset of all verbs that read a recipe.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace runner {

/// Declares both options. Their values are added to `overrides`, which must outlive `app`, in the order of the command line.
void add_overrides(CLI::App& app, std::vector<std::string>& overrides);

}  // namespace runner
