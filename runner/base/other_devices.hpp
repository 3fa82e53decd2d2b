// Devices that recipes may name but this program cannot use.
#pragma once
#include <string>
#include <vector>

namespace runner {

/// Values of devices.accelerator that need devices.simulate.
inline const std::vector<std::string>& other_devices() {
  static const std::vector<std::string> names = {"hpu", "ipu", "tpu"};
  return names;
}

/// How a recipe for them can run, for messages.
inline constexpr const char* under_simulation =
    "with devices.simulate = true CPU processes take the place of the devices";

}  // namespace runner
