#include "tests/device/allocators.hpp"

#include <cstring>

#include "tests/device/machine.hpp"

namespace runner::simulated {

namespace {

void free_on_device(void* address) {
  if (!address) return;
  Machine& all = machine();
  Lock lock = all.lock();
  all.memory(all.device_of(address)).free(static_cast<char*>(address));
}

void free_pinned(void* address) {
  if (!address) return;
  Lock lock = machine().lock();
  machine().pinned.free(static_cast<char*>(address));
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    int device = current_device();
    c10::Device here(device_type, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, nullptr, &free_on_device, here};
    check_device(device, "allocate");
    Lock lock = machine().lock();
    char* address = machine().memory(device).allocate(lock, static_cast<int64_t>(bytes), current_stream(device));
    return {address, address, &free_on_device, here};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_on_device; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "simulated device: copy_data"); }
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_pinned, at::kCPU};
    Lock lock = machine().lock();
    char* address = machine().pinned.allocate(static_cast<int64_t>(bytes));
    return {address, address, &free_pinned, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void* address, void*, c10::Stream stream) override {
    Lock lock = machine().lock();
    if (!machine().pinned.contains(address)) return false;
    machine().pinned.record_stream(static_cast<const char*>(address), machine().schedule.stream(stream));
    return true;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

}  // namespace

c10::Allocator& device_allocator() {
  static DeviceAllocator allocator;
  return allocator;
}

at::HostAllocator& pinned_allocator() {
  static PinnedAllocator allocator;
  return allocator;
}

}  // namespace runner::simulated
