// The probes behind read_facts, each told where to look, so that tests hand them a machine of their own.
#pragma once
#include <filesystem>
#include <string>

#include "runner/devices/devices.hpp"

namespace runner {

/// Fills cores, memory, hostname, kernel, cpu and vector extensions from ROOT/proc and ROOT/sys/fs/cgroup. `root` is
/// "/" but in tests. Limits of every enclosing cgroup (v1 and v2) and the affinity mask count; what cannot be read is
/// left as it was.
void read_host(const std::filesystem::path& root, Facts& facts);

/// Fills cuda or cuda_problem by asking the driver (libcuda) for the devices and NVML for what is in use on them. Both
/// are opened at run time, so a machine without them is an answer, not an error. Makes no CUDA context.
void read_cuda(const std::string& driver_library, const std::string& nvml_library, Facts& facts);

}  // namespace runner
