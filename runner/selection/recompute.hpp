// `[activation_checkpointing]` against a model's blocks.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// One per block: whether it is recomputed in backward. Only transformer blocks are, unless `named` names others.
std::vector<bool> recomputed_blocks(const Recipe::ActivationCheckpointing& settings, const ModelSpec& model);
/// Sets what is recomputed in a job whose options are known, and where the blocks' inputs wait.
void set_recompute(Job& job, const Recipe::ActivationCheckpointing& settings);
/// What is worth saying of the settings in a job: one sentence each.
std::vector<std::string> recompute_notes(const Job& job, const Recipe::ActivationCheckpointing& settings);
/// Patterns of `blocks` that match no block.
std::vector<std::string> unmatched_blocks(const Recipe::ActivationCheckpointing& settings, const ModelSpec& model);

}  // namespace runner
