// Devices that LibTorch does not know: their memory is the host's, and their operators are the CPU's. It shows all that LibTorch needs of a
// device of its own, and what the runner needs in addition.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <runner/plugins/torch_parts.hpp>

#include <array>
#include <atomic>
#include <cstdlib>

using c10::Device;
using c10::DeviceIndex;
using runner::plugin::Options;
using torch::Tensor;

namespace {

constexpr auto this_type = c10::DeviceType::PrivateUse1;
constexpr int most_devices = 4;
thread_local DeviceIndex current = 0;

/// Tensor bytes of one device.
struct Memory {
  std::atomic<int64_t> used = 0, peak = 0;
};
std::array<Memory, most_devices> memories;

struct Block {
  void* bytes;
  int64_t size;
  DeviceIndex device;
};

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{bytes > 0 ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr,
                            static_cast<int64_t>(bytes), current};
    auto& memory = memories[static_cast<size_t>(current)];
    const int64_t used = memory.used += block->size;
    for (int64_t peak = memory.peak; used > peak && !memory.peak.compare_exchange_weak(peak, used);) continue;
    return {block->bytes, block, &release, Device(this_type, current)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    memories[static_cast<size_t>(block->device)].used -= block->size;
    std::free(block->bytes);
    delete block;
  }
};

c10::Stream stream_of(Device device) { return c10::Stream(c10::Stream::DEFAULT, device); }

/// The current device of each thread. There is one stream, which computes at once.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return this_type; }
  Device exchangeDevice(Device device) const override {
    return {this_type, std::exchange(current, device.index() < 0 ? current : device.index())};
  }
  Device getDevice() const override { return {this_type, current}; }
  void setDevice(Device device) const override { exchangeDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override { exchangeDevice(device); }
  c10::Stream getStream(Device device) const override { return stream_of(device); }
  c10::Stream getDefaultStream(Device device) const override { return stream_of(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return most_devices; }
  void synchronizeStream(const c10::Stream&) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  void init() const override {}
};

HostAllocator allocator;
Hooks hooks;
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)
REGISTER_ALLOCATOR(this_type, &allocator)
const bool hooks_registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);
/// Before anything asks for the device by its name.
const bool named = (c10::register_privateuse1_backend("hostdev"), true);

constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);

Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &allocator, keys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &allocator, keys, c10::dtype_or_default(dtype));
}

/// The same memory as a CPU tensor.
Tensor on_host(const Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
                       at::device(at::kCPU).dtype(tensor.dtype()));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

const Tensor& resize(const Tensor& tensor, c10::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  if (tensor.sizes() == sizes) return tensor;  // also a view keeps its strides
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  const auto bytes = static_cast<size_t>(tensor.storage_offset() + tensor.numel()) * tensor.element_size();
  if (bytes > tensor.storage().nbytes()) {
    const c10::DeviceGuard guard(tensor.device());
    auto memory = allocator.allocate(bytes);
    std::memcpy(memory.get(), tensor.storage().data(), tensor.storage().nbytes());
    tensor.storage().set_data_ptr(std::move(memory));
    tensor.storage().set_nbytes(bytes);
  }
  return tensor;
}

Tensor strided_view(const Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                    std::optional<int64_t> offset) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                       tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_storage_offset(offset.value_or(tensor.storage_offset()));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return view;
}

Tensor view(const Tensor& tensor, c10::IntArrayRef sizes) {
  const auto host = on_host(tensor).view(sizes);
  return strided_view(tensor, host.sizes(), host.strides(), tensor.storage_offset());
}

Tensor reshape_alias(const Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return strided_view(tensor, sizes, strides, tensor.storage_offset());
}

Tensor& set_storage(Tensor& tensor, at::Storage storage, int64_t offset, c10::IntArrayRef sizes,
                    c10::IntArrayRef strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (strides.size() == sizes.size())
    impl->set_sizes_and_strides(sizes, strides);
  else  // they were left out
    impl->set_sizes_contiguous(sizes);
  return tensor;
}

at::Scalar local_scalar(const Tensor& tensor) { return on_host(tensor).item(); }

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("resize_", resize);
  library.impl("as_strided", strided_view);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("_local_scalar_dense", local_scalar);
}

class HostDevices final : public runner::torch_parts::Accelerator {
 public:
  explicit HostDevices(const Options& options)
      : count_(options.integer("host_devices", 2)),
        memory_(options.integer("device_memory", int64_t{1} << 30)),
        bf16_(options.flag("bf16", false)) {
    if (count_ < 0 || count_ > most_devices) throw std::invalid_argument("host_devices must be 0 to 4");
  }

  runner::torch_parts::AcceleratorFacts facts() const override {
    const runner::torch_parts::DeviceFacts device{.name = "memory of the host", .memory_bytes = memory_, .bf16 = bf16_};
    return {.type = "hostdev", .devices = std::vector(static_cast<size_t>(count_), device)};
  }
  void set_device(int device) override { current = static_cast<DeviceIndex>(device); }
  int64_t peak_memory_bytes(int device) const override { return memories[static_cast<size_t>(device)].peak; }

 private:
  int64_t count_, memory_;
  bool bf16_;
};

}  // namespace

RUNNER_TORCH_PARTS(.accelerator = [](const Options& options) -> std::unique_ptr<runner::torch_parts::Accelerator> {
  return std::make_unique<HostDevices>(options);
})
