// Batch arithmetic: global_batch_size = micro_batch_size x data ranks x accumulation.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// Fills in micro_batch_size and, where it follows, global_batch_size. What does not divide is reported with the values
/// that work.
void resolve_batch(Recipe& recipe, int data_ranks, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
