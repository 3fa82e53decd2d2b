#include "tests/device/machine.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <array>

namespace runner::simulated {

Machine::Machine() {
  for (int device = 0; device < device_count; ++device) {
    memories_.emplace_back(device, device_space_, device_space_.begin() + device * DeviceMemory::address_bytes,
                           schedule, reports);
    generators_.push_back(at::make_generator<at::CPUGeneratorImpl>(at::default_rng_seed_val));
  }
}

char* Machine::real(char* address) const {
  if (device_space_.contains(address)) return device_space_.real(address);
  if (pinned_space_.contains(address)) return pinned_space_.real(address);
  return address;
}

int Machine::device_of(const void* address) const {
  return static_cast<int>((static_cast<const char*>(address) - device_space_.begin()) / DeviceMemory::address_bytes);
}

bool Machine::has(const char* begin, const char* end) {
  if (!device_space_.contains(begin)) return true;
  const Block* block = memory(device_of(begin)).find(begin);
  return block && block->live && end <= block->end();
}

void Machine::note_use(Stream& stream, const Use& use) {
  if (use.begin == use.end) return;
  if (pinned_space_.contains(use.begin)) return pinned.copy_entered(stream, use);
  if (device_space_.contains(use.begin))
    memory(device_of(use.begin)).find(use.begin)->accesses.add(stream, use, reports);
}

void Machine::host_waits(Lock& lock, const MomentPtr& moment) {
  schedule.wait_on_host(lock, moment);
  pinned.host_waited(moment->stream->device);
}

void Machine::host_waits_for_device(Lock& lock, int device) {
  schedule.wait_for_device(lock, device);
  pinned.host_waited(device);
}

void Machine::host_saw(const MomentPtr& moment) {
  schedule.seen(moment);
  pinned.host_waited(moment->stream->device);
}

Machine& machine() {
  static auto* made = new Machine;
  return *made;
}

namespace {

struct Thread {
  int chosen = 0, current = 0;
  bool has_chosen = false;
  std::array<Stream*, device_count> streams = {};  ///< null: the default stream
};
thread_local Thread thread;

}  // namespace

int current_device() { return thread.current; }

void choose_device(int device) {
  thread.chosen = thread.current = device;
  thread.has_chosen = true;
}

int exchange_device(int device) { return std::exchange(thread.current, device < 0 ? thread.current : device); }

Stream& current_stream(int device) {
  Stream* set = thread.streams.at(static_cast<size_t>(device));
  return set ? *set : machine().schedule.default_stream(device);
}

void set_current_stream(Stream& stream) { thread.streams.at(static_cast<size_t>(stream.device)) = &stream; }

void check_device(int device, const char* what) {
  if (device == thread.chosen) return;
  machine().reports.add("current device: a thread whose current device is " + std::to_string(thread.chosen) +
                        (thread.has_chosen ? "" : " (it has never chosen one)") + " does `" + what + "` on device " +
                        std::to_string(device));
}

}  // namespace runner::simulated
