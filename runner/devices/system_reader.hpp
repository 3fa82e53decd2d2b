// Reads how busy the machine is and what a run uses of it, as values with names like "cpu/run_percent".
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/devices/nvml.hpp"

namespace runner {

/// Names with units, and values. A value that the system does not report is left out.
///
///   cpu/percent                      of the machine's CPUs, 0 to 100
///   cpu/run_percent                  of one CPU: two busy CPUs are 200
///   memory/used_bytes                of the machine, without caches that it can free
///   memory/run_bytes                 resident memory of the run's processes; shared pages count once for each process
///   disk/run_read_bytes_per_s, disk/run_write_bytes_per_s
///   disk/free_bytes                  where the run's folder is
///   network/received_bytes_per_s, network/sent_bytes_per_s     of the machine, without loopback
///   gpu/N/utilization_percent, gpu/N/memory_used_bytes, gpu/N/power_watts, gpu/N/temperature_celsius, gpu/N/clock_mhz
///   gpu/N/throttled                  1 if power or heat limits the clock, otherwise 0
///
/// N is the device's index in the order of CUDA_VISIBLE_DEVICES.
using SystemReading = std::vector<std::pair<std::string, double>>;

/// A GPU that is read, by its index and the name that NVML knows it by.
struct WatchedGpu {
  int index = 0;
  std::string uuid;
};

/// Rates are means since the previous reading, so the first reading has none. Not thread-safe.
class SystemReader {
 public:
  /// `proc` and `nvml` differ only in tests.
  SystemReader(std::filesystem::path run_folder, std::vector<WatchedGpu> gpus, std::filesystem::path proc = "/proc",
               const std::string& nvml = "libnvidia-ml.so.1");

  /// `processes`: ids of the run's processes on this machine; those that have ended are skipped. `now`: steady seconds.
  SystemReading read(const std::vector<int64_t>& processes, double now);

 private:
  /// Counters since the start of the machine or of each process.
  struct Counters {
    double time = 0;
    std::map<std::string, double> values;
  };
  void read_machine(Counters& counters, SystemReading& reading) const;
  void read_processes(const std::vector<int64_t>& processes, Counters& counters, SystemReading& reading);
  void read_gpus(SystemReading& reading) const;
  void add_rates(const Counters& counters, SystemReading& reading) const;

  std::filesystem::path folder_, proc_;
  std::vector<WatchedGpu> gpus_;
  std::optional<Nvml> nvml_;  ///< empty if there are no GPUs to read
  std::optional<Counters> before_;
  using Process = std::pair<int64_t, std::string>;  ///< id and start time, because ids are given again
  std::map<Process, std::map<std::string, double>> processes_before_;  ///< with their counters
};

}  // namespace runner
