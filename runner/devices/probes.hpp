// The probes that read_facts uses. Each takes a root folder, so that tests can provide any machine.
#pragma once
#include <filesystem>
#include <string>

#include "runner/devices/devices.hpp"

namespace runner {

/// Fills cores, memory, hostname, kernel, cpu and vector extensions from ROOT/proc and ROOT/sys/fs/cgroup. `root` is
/// "/" except in tests. The limits of all enclosing cgroups (v1 and v2) and the affinity mask apply. A value that cannot be read
/// is not changed.
void read_host(const std::filesystem::path& root, Facts& facts);

/// The instruction set whose kernels oneDNN runs on a CPU with these flags of /proc/cpuinfo, in lower case as
/// ONEDNN_MAX_CPU_ISA names it; empty below AVX2. `limit`: the value of that variable, which only lowers; oneDNN ignores
/// a value that it does not know.
std::string onednn_isa(const std::vector<std::string>& flags, const std::string& limit);

/// Fills cuda, or cuda_problem. The driver (libcuda) lists the devices, NVML reports what is in use. Both libraries are opened at
/// run time, so a machine without them is not an error. Does not create a CUDA context.
void read_cuda(const std::string& driver_library, const std::string& nvml_library, Facts& facts);

}  // namespace runner
