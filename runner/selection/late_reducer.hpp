// Reducers that begin only after the last step of a run.
#pragma once
#include <optional>
#include <string>

#include "runner/config/recipe.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// The note on a built-in reducer of the job's plan, such as powerSGD_hook, whose first steps only sum gradients, if train.max_steps ends
/// the run in these steps.
std::optional<std::string> note_on_late_reducer(const Recipe& recipe, const Entry& entry, const Job& job);

}  // namespace runner
