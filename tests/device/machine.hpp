// All of the simulated machine: its devices' streams and memories, pinned memory, and what it has to report.
#pragma once
#include <ATen/core/Generator.h>

#include <deque>
#include <vector>

#include "tests/device/device_type.hpp"
#include "tests/device/memory.hpp"
#include "tests/device/pinned.hpp"

namespace runner::simulated {

/// One for the process, alive until its end: static tensors may be freed late. The caller of a member holds the lock.
class Machine {
 public:
  Machine();

  Lock lock() { return Lock(mutex_); }

  bool on_device(const void* address) const { return device_space_.contains(address); }
  DeviceMemory& memory(int device) { return memories_.at(static_cast<size_t>(device)); }
  at::Generator& generator(int device) { return generators_.at(static_cast<size_t>(device)); }
  /// Where kernels find the byte that tensors know by `address`, which is on a device or in pinned memory.
  char* real(char* address) const;
  int device_of(const void* address) const;

  /// Whether a tensor may use these bytes: a device's belong to one block that lives.
  bool has(const char* begin, const char* end);
  /// The task that was entered into `stream` last uses these bytes of a device or of pinned memory. Other memory is
  /// left out.
  void note_use(Stream& stream, const Use& use);
  /// Called after an operation has queued its tasks.
  void run_some(int device) { schedule.run_some(device); }
  void host_waits(Lock& lock, const MomentPtr& moment);
  void host_waits_for_device(Lock& lock, int device);
  void host_saw(const MomentPtr& moment);

 private:
  std::mutex mutex_;
  AddressSpace device_space_{static_cast<size_t>(device_count) * static_cast<size_t>(DeviceMemory::address_bytes)};
  AddressSpace pinned_space_{size_t{1} << 34};

 public:
  Reports reports;
  Schedule schedule{device_count};
  PinnedMemory pinned{pinned_space_, schedule, reports};
  OperatorCounts operators;

 private:
  std::deque<DeviceMemory> memories_;
  std::vector<at::Generator> generators_;
};

Machine& machine();

// ---- what the calling thread has chosen

int current_device();
/// As cudaSetDevice: until the thread chooses another one.
void choose_device(int device);
/// As a guard does for a while.
int exchange_device(int device);
Stream& current_stream(int device);
void set_current_stream(Stream& stream);
/// Reports a thread that works on a device that it has not chosen. On CUDA such a thread sets up the device that is its
/// current one, by default the first, in every process. A guard hides it from the call, not from the driver, so guards
/// do not count here.
void check_device(int device, const char* what);

}  // namespace runner::simulated
