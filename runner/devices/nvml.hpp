// The readings of GPUs by NVIDIA's management library (NVML). The library is opened at run time, and the part of its C interface
// (nvml.h) that is used is declared in nvml.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace runner {

/// Values that the GPU or its driver does not report are empty. MIG devices report only their memory.
struct GpuReading {
  std::optional<int64_t> memory_used_bytes, memory_free_bytes;
  std::optional<double> utilization_percent;  ///< share of the last sample period in which a kernel ran
  std::optional<double> power_watts, temperature_celsius, clock_mhz;  ///< clock: of the multiprocessors
  /// Whether the clock is lower than it could be because of power or heat (nvmlClocksThrottleReason*).
  std::optional<bool> throttled;
};

/// Not thread-safe.
class Nvml {
 public:
  explicit Nvml(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Handle of a device; null if NVML is missing or does not know it. `uuid`: "GPU-..." or "MIG-...".
  void* device(const std::string& uuid) const;
  GpuReading read(void* device) const;
  /// Compute processes on the device; -1 if NVML does not tell.
  int processes(void* device) const;

 private:
  struct Functions;
  std::unique_ptr<Functions> functions_;  ///< null if NVML is missing
};

}  // namespace runner
