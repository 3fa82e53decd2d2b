// Applies `[activation_checkpointing]` to the blocks of a model.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// For each block, whether it is recomputed in the backward pass. Other blocks than transformer blocks need mode "named".
std::vector<bool> recomputed_blocks(const Recipe::ActivationCheckpointing& settings, const ModelSpec& model);
/// Sets the blocks that a job recomputes, and whether their inputs are kept in host memory.
void set_recompute(Job& job, const Recipe::ActivationCheckpointing& settings);
/// Notes about the settings in a job, one sentence each.
std::vector<std::string> recompute_notes(const Job& job, const Recipe::ActivationCheckpointing& settings);
/// Patterns of `blocks` that match no block.
std::vector<std::string> unmatched_blocks(const Recipe::ActivationCheckpointing& settings, const ModelSpec& model);

}  // namespace runner
