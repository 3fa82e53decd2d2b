// Device slots: the devices on which trials run in parallel.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/devices/devices.hpp"

namespace runner::sweep {

struct Slot {
  std::string name;                                ///< "cpu:0", "cuda:2", "cuda:0,1"
  std::map<std::string, std::string> environment;  ///< CUDA_VISIBLE_DEVICES
  std::vector<std::string> overrides;  ///< threads of CPU ranks; number of GPUs, if free ones were requested
};

/// Makes `parallel` slots, or as many as the machine can have. On CUDA there is one slot for each group of GPUs that the recipe
/// requests: one GPU if the recipe does not say, all for devices = -1, free ones for "free:N". On CPU there is one slot for each
/// group of as many cores as a trial has ranks. Throws Error(usage) if `parallel` does not fit the GPUs, if the recipe names GPUs
/// by index, or if it needs several nodes. Throws Error(environment) if there are fewer devices than one trial needs.
std::vector<Slot> device_slots(const Recipe& recipe, const Facts& facts, std::optional<int> parallel);

}  // namespace runner::sweep
