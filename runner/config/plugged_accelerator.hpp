// The abilities of the devices of plugins.accelerator, for the planner and for the worker.
#pragma once
#include <nlohmann/json.hpp>

#include "strategies/collective/accelerator.hpp"

namespace runner {

/// `stated`: the fields of torch_parts::AcceleratorFacts by name, as describe_accelerator() gives them.
inline Accelerator plugged_accelerator(const nlohmann::json& stated) {
  return {.type = stated.at("type"),
          .own_memory = true,
          .streams = stated.at("streams"),
          .pinned = stated.at("pinned"),
          .host_kernels = false,
          .collectives = stated.at("collectives"),
          .workspace_bytes = stated.at("workspace_bytes"),
          .context_bytes = stated.at("context_bytes"),
          .communicator_bytes = stated.at("communicator_bytes")};
}

}  // namespace runner
