// Finds keys without effect.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// Notes about switches that change nothing in this recipe.
std::vector<std::string> idle_switches(const Recipe& recipe);

}  // namespace runner
