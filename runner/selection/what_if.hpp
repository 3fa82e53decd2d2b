// The choices that would result from changes: single ones of the recipe or the hardware, and other ways of training a model that does not
// fit, which are optimizer state in fewer bits, adapters of a frozen base (LoRA, QLoRA), and a frozen base in 16 bits.
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

struct Offer {
  std::string what;                ///< "LoRA: low-rank adapters are trained, and the base is frozen"
  std::vector<std::string> lines;  ///< of the recipe: `fine_tune.method = "lora"`
  Choice choice;                   ///< after the change
};

/// Whether a choice is reason for offers: nothing fits, or only with state outside the device.
bool needs_offers(const Choice& choice);

/// The offers for a request, the smallest change first. They are not for recipes that already have what they offer.
std::vector<Offer> make_offers(const SelectionRequest& request, const StepClock& clock);

/// Two lines or more for each offer: what it is with the predicted memory, and the lines of the recipe. Empty if there are none.
std::string offers_text(const std::vector<Offer>& offers);
nlohmann::json offers_json(const std::vector<Offer>& offers);

/// The candidate that needs the least memory of the device; null if all are refused.
const Candidate* least_candidate(const Choice& choice);

}  // namespace runner
