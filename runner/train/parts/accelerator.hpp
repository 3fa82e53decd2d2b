// The services that a worker needs of the devices of its recipe: the CPU, CUDA, or the devices of plugins.accelerator.
#pragma once
#include <functional>

#include "runner/config/recipe.hpp"
#include "strategies/collective/accelerator.hpp"

namespace runner {

/// Returns the peak of tensor bytes on the training device.
using PeakMemory = std::function<int64_t()>;

/// The devices of this process.
struct OpenDevices {
  Accelerator accelerator;
  /// Prepares a device for the calling thread, which is a rank. `ranks`: how many ranks are threads of this process. CPU ranks share one
  /// count of tensor bytes, and each reports an equal part. Throws Error(usage) if a plug-in fails.
  std::function<PeakMemory(int device, int ranks)> prepare;
};

/// Opens the module or the library of the devices. Call it before anything queries LibTorch about CUDA. Throws Error(usage) for a library
/// that cannot be used, Error(environment) without a CUDA module.
OpenDevices open_devices(const Recipe& recipe);

/// The facts that the library of plugins.accelerator states. `request`: {"plugin", "options"}. Returns the fields of
/// torch_parts::AcceleratorFacts and "asked", the names of its options. Throws Error(usage).
nlohmann::json describe_accelerator(const nlohmann::json& request);

}  // namespace runner
