// `xla`, `single_xla` and `xla_fsdp`: a step that XLA compiles, on the devices of a PJRT plug-in. One process has a thread for each device.
// Torch-free.
//
// Source: PyTorch/XLA's data parallelism and XlaFullyShardedDataParallel; Lightning's XLAStrategy,
// SingleDeviceXLAStrategy and XLAFSDPStrategy, before 2.0 TPUSpawnStrategy. There each device has its own process, and
// operators are collected until `mark_step`. Here the step of a recipe is one program, so there is nothing to mark.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry xla_entry();
Entry single_xla_entry();
Entry xla_fsdp_entry();

/// Whether a PJRT plug-in computes on the host's CPUs, in its memory. `path`: empty for the default one.
bool computes_on_host(const std::string& path);
/// The plug-in for other devices that the options of such a strategy name; empty: none.
std::string plugin_of_devices(const nlohmann::json& options);

}  // namespace runner
