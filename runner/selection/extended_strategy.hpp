// Strategies in Lua that extend a built-in one: the catalog entry of the built-in one, with what the functions of the file change.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/selection/planner_script.hpp"
#include "strategies/catalog.hpp"

namespace runner {

/// The entry `name` of a file with a `base`. Mistakes in its options go to `diagnostics`; then there is no entry.
std::optional<Entry> extended_entry(const std::string& name, const std::shared_ptr<PlannerScript>& script,
                                    std::vector<Diagnostic>& diagnostics);

/// "memory and traffic of `NAME` are not known ...", or empty if the entry has both.
std::string note_on_missing_predictions(const Entry& entry);

}  // namespace runner
