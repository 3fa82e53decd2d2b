// What is wrong between keys, as far as no strategy and no device needs to be known.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"

namespace runner {

void find_contradictions(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
