// `[activation_checkpointing]` against a model's blocks.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// One per block: whether it is recomputed in backward. Only transformer blocks are, unless `named` names others.
std::vector<bool> recomputed_blocks(const Recipe::ActivationCheckpointing& settings, const ModelSpec& model);
/// Patterns of `blocks` that match no block.
std::vector<std::string> unmatched_blocks(const Recipe::ActivationCheckpointing& settings, const ModelSpec& model);

}  // namespace runner
