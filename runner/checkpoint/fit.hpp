// Whether a training can continue from a checkpoint: compares the settings that give its tensors their meaning, and the
// names and shapes of its tensors. Torch-free, so that this is checked before anything is started.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/checkpoint/checkpoint.hpp"
#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// The settings of a resolved recipe with which a checkpoint's tensors can be used: those of model_settings(),
/// "optimizer.name" and "optimizer.momentum" (sgd). Checkpoints contain them as state()["settings"].
nlohmann::json settings_of_tensors(const Recipe& resolved);

/// "model.n_layers = 1, the checkpoint's is 2" for each setting of the model that differs. Empty for a checkpoint that
/// contains no settings, as earlier versions wrote it.
std::vector<std::string> other_model(const Checkpoint& checkpoint, const Recipe::Model& model, int64_t vocab_size);

/// Throws Error(usage) with every difference if the recipe's model or optimizer cannot continue with the checkpoint's
/// tensors. Strategy, ranks, precision and learning rates are not compared: any of them can continue. Returns notes
/// about differences that are accepted.
std::vector<std::string> check_fit(const Checkpoint& checkpoint, const Recipe& resolved, const ModelSpec& spec);

}  // namespace runner
