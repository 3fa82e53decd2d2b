// What is wrong between keys, as far as no strategy and no device needs to be known.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"

namespace runner {

/// Appends to `diagnostics`. Sections that these say are wrong already are not reasoned about, absent ones neither where
/// one has a name that is unknown, and nothing is when a mistake in no section may have kept anything away.
void find_contradictions(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
