// Checks sequence lengths and vocabulary, as far as this needs only the recipe.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// Appends to `diagnostics` if samples are longer than model.max_seq_len, or if "bin" data have no vocabulary size.
void check_lengths(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
