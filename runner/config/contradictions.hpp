// What is wrong between keys, as far as no strategy and no device needs to be known.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"

namespace runner {

/// Appends to `diagnostics`. Sections that these say are wrong already are not reasoned about, and nothing is when one
/// of them may have kept a whole section away.
void find_contradictions(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
