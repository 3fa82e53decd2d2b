// How long others kept this process from the CPUs: other processes of this machine, and other virtual machines.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace runner {

/// Counters since some moment in the past. Those that the kernel does not have are empty.
struct Contention {
  double time = 0;                ///< steady_seconds() of the reading
  std::optional<double> waited;   ///< seconds in which threads of this process were ready, and waited for a CPU
  std::optional<double> pressed;  ///< seconds in which any task of the machine waited for a CPU (its "pressure")
  double stolen = 0;              ///< seconds that the hypervisor took from the average CPU
  int64_t preempted = 0;          ///< times that a thread of this process lost its CPU before it gave it up
};

/// From self/task/*/schedstat, pressure/cpu and stat of `proc`, and getrusage.
Contention read_contention(const std::filesystem::path& proc = "/proc");

/// Part of the time between two readings, 0 to 1, in which the process wanted a CPU and did not get it. Its waiting
/// time is the most exact measure. If the kernel does not count that, the pressure of the machine is used, and without
/// that a time slice for each preemption. Stolen time is always added.
double lost_share(const Contention& before, const Contention& after);

}  // namespace runner
