#include "tests/device/simulation.hpp"

#include <signal.h>
#include <unistd.h>

#include <string_view>

#include "tests/device/machine.hpp"

namespace runner::simulated {

namespace {

struct sigaction before;

/// The host has touched a page that it may not touch. A protected page of pinned memory is reported and opened, and the
/// access is made again. Anything else goes to the handler before this one, which ends the program. The signal comes
/// from a plain load or store of code that has none of the machine's locks, so taking one is safe here.
void on_fault(int, siginfo_t* info, void*) {
  auto* address = static_cast<char*>(info->si_addr);
  {
    Lock lock = machine().lock();
    if (machine().pinned.contains(address) && machine().pinned.handle_fault(address)) return;
  }
  constexpr std::string_view text = "the host uses memory of a simulated device\n";
  if (machine().on_device(address) && ::write(STDERR_FILENO, text.data(), text.size()) < 0) ::_exit(1);
  ::sigaction(SIGSEGV, &before, nullptr);
}

}  // namespace

Simulation::Simulation(Policy policy, const Speeds& speeds) {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &before);
  set_memory_limit(DeviceMemory::no_limit);
  for (int device = 0; device < device_count; ++device) reset_peak(device);
  reset_pinned_peak();
  take_reports();
  Lock lock = machine().lock();
  machine().schedule.set_policy(policy);
  machine().schedule.set_speeds(speeds);
  machine().operators = {};
}

Simulation::~Simulation() {
  try {
    wait_for_devices();
  } catch (const std::exception& error) {
    machine().reports.add(error.what());
  }
  ::sigaction(SIGSEGV, &before, nullptr);
}

std::vector<std::string> take_reports() { return machine().reports.take(); }

void wait_for_devices() {
  Lock lock = machine().lock();
  for (int device = 0; device < device_count; ++device) machine().host_waits_for_device(lock, device);
}

TimeStatistics time_statistics(int device) {
  Lock lock = machine().lock();
  machine().host_waits_for_device(lock, device);
  return machine().schedule.time(device);
}

MemoryStatistics memory_statistics(int device) {
  Lock lock = machine().lock();
  return machine().memory(device).statistics();
}

PinnedStatistics pinned_statistics() {
  Lock lock = machine().lock();
  return machine().pinned.statistics();
}

void reset_peak(int device) {
  Lock lock = machine().lock();
  machine().memory(device).reset_peak();
}

void reset_pinned_peak() {
  Lock lock = machine().lock();
  machine().pinned.reset_peak();
}

void set_memory_limit(int64_t bytes) {
  Lock lock = machine().lock();
  for (int device = 0; device < device_count; ++device) machine().memory(device).set_limit(bytes);
}

OperatorCounts operator_counts() {
  Lock lock = machine().lock();
  return machine().operators;
}

}  // namespace runner::simulated
