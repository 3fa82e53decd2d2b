// What would change the answer: the same question with one thing different.
#pragma once
#include <string>
#include <vector>

#include "runner/selection/choice.hpp"

namespace runner {

struct WhatIf {
  std::string change;  ///< what a person would change, e.g. "devices = 16"
  Choice choice;       ///< the answer then
};

/// The changes worth a thought, the cheapest first: a smaller micro-batch than the recipe's own, half and twice the
/// global batch, fewer ranks of a CPU and a disk for offload (unless something `fits` without), a smaller precision,
/// shorter sequences, more devices.
std::vector<WhatIf> what_if(const SelectionRequest& request, const StepClock& clock, bool fits);

/// Where nothing fits: by how much at least, and up to three changes with which something does.
std::string explain_shortfall(const SelectionRequest& request, const Choice& choice, const StepClock& clock);

}  // namespace runner
