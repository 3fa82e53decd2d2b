// The simulated machine as tests use it.
//
// A test makes a Simulation with a policy, runs code on devices of type PrivateUse1, and then looks at the reports:
// races, uses of memory that is not there, pinned memory that the host uses too early, and threads on a device that
// they have not chosen.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/device/device_type.hpp"
#include "tests/device/policy.hpp"
#include "tests/device/speeds.hpp"
#include "tests/device/statistics.hpp"

namespace runner::simulated {

/// Only one Simulation may exist at a time. At its beginning there are no reports, no limits, and peaks are what is in
/// use; at its end all devices are done.
class Simulation {
 public:
  explicit Simulation(Policy policy = {}, const Speeds& speeds = {});
  ~Simulation();
  Simulation(const Simulation&) = delete;
};

/// Returns the reports and empties their list.
std::vector<std::string> take_reports();
/// The host waits for all that was entered, on all devices.
void wait_for_devices();

/// The host waits for the device first.
TimeStatistics time_statistics(int device);
MemoryStatistics memory_statistics(int device);
PinnedStatistics pinned_statistics();
/// The peak of one device, or of pinned memory, is what is in use now.
void reset_peak(int device);
void reset_pinned_peak();
/// Of each device, in bytes; allocations beyond it throw c10::OutOfMemoryError.
void set_memory_limit(int64_t bytes);
OperatorCounts operator_counts();

}  // namespace runner::simulated
