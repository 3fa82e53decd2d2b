// Opens the library of plugins.precision.
#pragma once
#include <memory>

#include "runner/config/recipe.hpp"
#include "strategies/contract/conversion.hpp"

namespace runner {

/// Null without plugins.precision. Sets `recipe.plugins.converted`. Throws Error(usage) if the library cannot be loaded, exports no such
/// part, was built with another version of the interface or of LibTorch, or if it raises an exception.
std::shared_ptr<Conversion> open_precision(Recipe& recipe);

/// The facts that the library states about itself. `request`: {"plugin", "options"}. Returns {"mode", "asked", "parameters",
/// "matrices_only", "kept_bytes", "working_bytes"}; `asked` are the names of the options that it has; of the last two, null: by
/// default. Throws Error(usage).
nlohmann::json describe_precision(const nlohmann::json& request);

}  // namespace runner
