// Ranks as threads with one simulated device each.
#pragma once
#include "strategies/collective/world.hpp"

namespace runner::simulated {

/// Its operators are the CPU's kernels, but their scratch memory is not the device's.
inline Accelerator simulated_accelerator() {
  return {.type = "simulated",
          .own_memory = true,
          .streams = true,
          .pinned = true,
          .host_kernels = false,
          .collectives = ""};
}

/// Runs `body` once for each rank, as run_ranks does, on at most four devices. The world's groups, and those made of
/// it, are of the devices; `control` is the CPU's. When all ranks are done, so are the devices.
void run_on_devices(int world_size, const std::function<void(World&)>& body);

}  // namespace runner::simulated
