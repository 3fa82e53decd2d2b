// Whether the data have the fields that the model needs.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Appends a mistake if `provided`, the fields of the recipe's data, lack fields of `model`.
void check_batch_fields(const Recipe& recipe, const ModelSpec& model, const std::vector<BatchField>& provided,
                        std::vector<Diagnostic>& diagnostics);

}  // namespace runner
