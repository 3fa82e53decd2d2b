// What a recipe alone shows to be wrong with sequence lengths and vocabulary.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// Appends to `diagnostics`: samples longer than the model's positions, data of tokens without a vocabulary.
void check_lengths(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
