// The options --set and --unset, which every verb that reads a recipe has.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace runner {

/// Declares both; `overrides`, which must outlive `app`, gets them in the order in which they were given.
void add_overrides(CLI::App& app, std::vector<std::string>& overrides);

}  // namespace runner
