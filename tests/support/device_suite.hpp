// Tests of the strategies that run on a simulated device in one program and on CUDA devices in another. The program says how its
// devices are used (test_devices) and links device_suite.cpp.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "strategies/collective/accelerator.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// Bytes in use, as tensors ask for them.
struct MemoryUse {
  int64_t now = 0, peak = 0;  ///< the peak since reset_peaks
};

/// One way to put ranks on devices.
struct TestDevice {
  std::string name;         ///< in messages
  Accelerator accelerator;  ///< of the ranks' worlds
  int ranks_most = 1;       ///< forms with more ranks run with so many
  /// Results do not depend on the shapes of kernels, and bytes are counted without any of LibTorch's own.
  bool exact = false;
  /// Runs ranks as threads. Fails the test for mistakes that only this device notices, such as races.
  Launch launch;

  // ---- memory; empty functions if ranks share a device, because a rank's bytes are not known then
  std::function<MemoryUse(int rank)> memory = {};
  std::function<void(int rank)> reset_peak = {};
  /// Pinned memory of all ranks, in powers of two.
  std::function<MemoryUse()> pinned = {};
  /// Limits of claimed / measured peak.
  double claim_least = 0.99, claim_most = 1.03;
  /// Limit of measured / claimed peak of pinned memory.
  double pinned_most = 1;
};

/// Never empty: skips the test, with the reason, if this machine has no such device.
std::vector<TestDevice> test_devices();

}  // namespace runner::testing
