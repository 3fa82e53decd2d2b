// Builds the module of a spec: blocks over empty parameter slots (see strategies/contract/module.hpp).
#pragma once
#include <memory>

#include "runner/config/recipe.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

std::unique_ptr<Model> build_model(const Recipe::Model& model, const ModelSpec& spec);

}  // namespace runner
