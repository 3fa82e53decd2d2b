// Adapters of models whose output layer shares the embedding's weight. PEFT trains a copy of each module in modules_to_save, so a folder
// with one of the two makes the other one keep the weight of the base (peft/utils/other.py, ModulesToSaveWrapper).
#pragma once
#include <optional>
#include <string>

#include "runner/checkpoint/hf.hpp"

namespace runner {

struct TiedHead {
  size_t slot = 0;             ///< of the embedding's weight
  std::string embedding = "";  ///< its tensor in Hugging Face's files
  std::string head =
      "";  ///< the output layer's where it has its own weight; empty: no such model of the family can be read
};

/// Unset: the model has no output layer of that kind.
std::optional<TiedHead> find_tied_head(const Recipe::Model& model, const ModelSpec& spec);

/// Why PEFT uses other weights in the output layer than in the embedding with the adapter in this folder; empty: it does not.
std::string difference_of_head(const fs::path& folder, const TiedHead& tied);

}  // namespace runner
