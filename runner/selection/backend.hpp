// Who carries the collectives, as [devices] or the strategy's option says, against the devices of the run.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "runner/selection/plan.hpp"

namespace runner {

/// Moves the strategy's process_group_backend from `options` to [devices]. Appends to `diagnostics`: two different
/// ones, and one that cannot join these ranks.
void resolve_backend(Recipe& recipe, nlohmann::json& options, const Topology& topology,
                     std::vector<Diagnostic>& diagnostics);

}  // namespace runner
