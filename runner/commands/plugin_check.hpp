// Finds the mistakes in [plugins] before a run starts.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"

namespace runner {

/// Loads every part in [plugins] and reports its mistakes, and options that no part has. It asks no part to do its work, so it needs
/// nothing that exists only in a job.
void check_plugins(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// The same, before a plug-in does any work: a misspelt option of one that finds the other nodes, or the checkpoint to continue from, must
/// not be ignored. Throws RecipeError.
void refuse_bad_plugins(const Recipe& recipe);

}  // namespace runner
