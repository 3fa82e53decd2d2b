// The simulated device as LibTorch's runtime knows it: guard, streams, events, hooks, generators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/device/allocators.hpp"
#include "tests/device/machine.hpp"
#include "tests/device/tensors.hpp"
#include "tests/device/waits.hpp"

namespace runner::simulated {

namespace {

c10::Stream as_c10(const Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, device_at(stream.device), stream.id);
}

int index_of(c10::Device device) { return device.has_index() ? device.index() : current_device(); }

/// An event is a MomentPtr on the heap; c10::Event owns it.
MomentPtr& moment_of(void* event) { return *static_cast<MomentPtr*>(event); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return device_type; }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count; }

  // ---- the current device
  c10::Device exchangeDevice(c10::Device device) const override { return device_at(exchange_device(device.index())); }
  c10::Device getDevice() const override { return device_at(current_device()); }
  void setDevice(c10::Device device) const override { choose_device(index_of(device)); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { exchange_device(device.index()); }

  // ---- streams
  c10::Stream getStream(c10::Device device) const override {
    Lock lock = machine().lock();
    return as_c10(current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    Lock lock = machine().lock();
    return as_c10(machine().schedule.default_stream(index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    Lock lock = machine().lock();
    return as_c10(machine().schedule.pool_stream(index_of(device)));
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStreamFromGlobalPool(device, false); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    Lock lock = machine().lock();
    c10::Stream old = as_c10(current_stream(stream.device_index()));
    set_current_stream(machine().schedule.stream(stream));
    return old;
  }
  bool queryStream(const c10::Stream& stream) const override {
    Lock lock = machine().lock();
    return seen(machine().schedule.record(machine().schedule.stream(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    check_device(stream.device_index(), "wait for a stream");
    Lock lock = machine().lock();
    machine().host_waits(lock, machine().schedule.record(machine().schedule.stream(stream)));
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    check_device(device, "wait for a device");
    Lock lock = machine().lock();
    machine().host_waits_for_device(lock, device);
  }

  // ---- events
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    check_device(stream.device_index(), "record an event");
    Lock lock = machine().lock();
    if (!*event) *event = new MomentPtr;
    moment_of(*event) = machine().schedule.record(machine().schedule.stream(stream));
    machine().run_some(stream.device_index());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event || wait_is_left_out()) return;
    check_device(stream.device_index(), "let a stream wait for an event");
    Lock lock = machine().lock();
    machine().schedule.wait(machine().schedule.stream(stream), moment_of(event));
    machine().run_some(stream.device_index());
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    Lock lock = machine().lock();
    return seen(moment_of(event));
  }
  void synchronizeEvent(void* event) const override {
    if (!event || wait_is_left_out()) return;
    Lock lock = machine().lock();
    MomentPtr moment = moment_of(event);
    check_device(moment->stream->device, "wait for an event");
    machine().host_waits(lock, moment);
  }
  void destroyEvent(void* event, c10::DeviceIndex device) const noexcept override {
    if (!event) return;
    check_device(device, "destroy an event");
    Lock lock = machine().lock();
    delete static_cast<MomentPtr*>(event);
  }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override { return 0; }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (wait_is_left_out()) return;
    Lock lock = machine().lock();
    if (machine().on_device(data.get()))
      machine()
          .memory(stream.device_index())
          .record_stream(static_cast<const char*>(data.get()), machine().schedule.stream(stream));
  }

 private:
  static bool seen(const MomentPtr& moment) {
    if (moment->passed) machine().host_saw(moment);
    return moment->passed;
  }
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return device_count; }
  void setCurrentDevice(c10::DeviceIndex device) const override { choose_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return static_cast<c10::DeviceIndex>(exchange_device(device));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* address) const override { return machine().pinned.contains(address); }
  at::Device getDeviceFromPtr(void* address) const override { return device_at(machine().device_of(address)); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return machine().generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>(at::default_rng_seed_val);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

const bool registered = [] {
  c10::register_privateuse1_backend("simulated");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(device_type, &device_allocator());
  at::setHostAllocator(device_type, &pinned_allocator());
  return true;
}();

}  // namespace

}  // namespace runner::simulated
