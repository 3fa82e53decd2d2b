// Device slots: where trials run side by side.
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
  std::vector<std::string> overrides;  ///< threads of CPU ranks; how many GPUs, where the free ones were taken
};

/// As many slots as `parallel` says, or as the machine holds: on CUDA one for each group of GPUs that the recipe asks
/// for (one GPU where it leaves that open, all for devices = -1, of the free ones for "free:N"), on CPU one for each
/// group of cores as large as its ranks. Throws Error(usage) where `parallel` does not fit the GPUs, the recipe names
/// GPUs by index, or wants several nodes; Error(environment) where there are not as many as one trial asks for.
std::vector<Slot> device_slots(const Recipe& recipe, const Facts& facts, std::optional<int> parallel);

}  // namespace runner::sweep
