// Finds contradictions between keys, as far as this needs no knowledge of strategies and devices.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"

namespace runner {

/// Appends to `diagnostics`. Skips sections that have a mistake already. If a section has an unknown name, it also skips absent
/// sections, because the name may be a misspelling of one. If a mistake belongs to no section, it checks nothing.
void find_contradictions(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
