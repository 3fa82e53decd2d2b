// Process groups of ranks that share one device, which NCCL does not allow. Each collective copies its tensors to host memory, runs
// there on the rank's group for CPU tensors, and copies the results back.
#pragma once
#include "strategies/collective/world.hpp"

namespace runner::testing {

/// Replaces the groups of a rank of run_ranks, except `control`, by groups for tensors on devices of this type. The trace records
/// the same calls.
void stage_groups(World& world, c10::DeviceType device);

}  // namespace runner::testing
