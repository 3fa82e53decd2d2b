// The backend of collectives: reads it from [devices] or the strategy's option, and checks it against the devices.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/selection/topology.hpp"

namespace runner {

/// Moves the strategy's process_group_backend from `options` to [devices]. Appends to `diagnostics` if the two differ, or if the
/// backend cannot connect these ranks.
void resolve_backend(Recipe& recipe, nlohmann::json& options, const Topology& topology,
                     std::vector<Diagnostic>& diagnostics);

}  // namespace runner
