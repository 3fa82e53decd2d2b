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
  std::string name;                                ///< "cpu:0", "cuda:2", "cuda:0,1", "npu:0"
  std::map<std::string, std::string> environment;  ///< CUDA_VISIBLE_DEVICES, or RUNNER_VISIBLE_DEVICES for a plug-in's
  /// Threads of CPU ranks; the number of devices, if free ones were requested.
  std::vector<std::string> overrides;
};

/// Makes `parallel` slots, or as many as the machine can have. There is one slot for each group of devices that the recipe
/// requests: one device if the recipe does not say, all for devices = -1, free ones for "free:N". On CPU there is one slot for each
/// group of as many cores as a trial has ranks. Throws Error(usage) if `parallel` does not fit the devices, if the recipe names them
/// by index, or if it needs several nodes. Throws Error(environment) if there are fewer devices than one trial needs.
std::vector<Slot> device_slots(const Recipe& recipe, const Facts& facts, std::optional<int> parallel);

}  // namespace runner::sweep
