// The decisions of the library of plugins.precision about a run, before it starts.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Sets precision.mode, unless the library leaves it to the devices, and plugins.converted. Nothing without the key. Reports a recipe that
/// contradicts the library, and the library's mistakes.
void resolve_precision_part(Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// The names of the options that the library has. Nullopt if it cannot be asked; resolve_precision_part() reports why.
std::optional<std::set<std::string>> options_of_precision(const Recipe& recipe);

/// Reports a library whose patterns match no parameter of the model. `recipe`: after resolve_precision_part().
void check_converted_parameters(const Recipe& recipe, const ModelSpec& model, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
