// The choices that would result from single changes of the recipe or the hardware.
#pragma once
#include <string>
#include <vector>

#include "runner/selection/choice.hpp"

namespace runner {

struct WhatIf {
  std::string change;  ///< as in a recipe, e.g. "devices = 16"
  Choice choice;       ///< the choice after the change
};

/// Useful changes, the cheapest first: policy "fastest" (if the request `fits`), micro-batch 1, half and twice the
/// global batch, a higher memory limit, fewer CPU ranks and a disk for offload (these three unless it fits), a smaller
/// precision, shorter sequences, more devices.
std::vector<WhatIf> what_if(const SelectionRequest& request, const StepClock& clock, bool fits);

/// The message if nothing fits: the smallest shortfall, and up to three changes after which something fits.
std::string explain_shortfall(const SelectionRequest& request, const Choice& choice, const StepClock& clock);

}  // namespace runner
