// Patterns of a recipe that name parameters: optimizer.groups, model.frozen, fine_tune.targets.
#pragma once
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Reports patterns of optimizer.groups and model.frozen that match no parameter, and a model without trained parameters.
void check_parameter_patterns(const Recipe& recipe, const ModelSpec& model, std::vector<Diagnostic>& diagnostics);

/// Notes about groups of [optimizer] that no trained parameter belongs to.
std::vector<std::string> idle_groups(const Recipe& recipe, const ModelSpec& model);

}  // namespace runner
