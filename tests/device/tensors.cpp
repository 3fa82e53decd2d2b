// Making tensors on the simulated device, their views, and changes of their storage.
#include "tests/device/tensors.hpp"

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "tests/device/allocators.hpp"
#include "tests/device/copies.hpp"
#include "tests/device/waits.hpp"

namespace runner::simulated {

namespace {

constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(sizes, &device_allocator(), keys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(), keys, c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  return at::cpu::as_strided_symint(self, sizes, strides, offset);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef symbolic, std::optional<at::MemoryFormat>) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(symbolic);
  if (self.sizes() == sizes) return self;
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  size_t bytes = static_cast<size_t>(self.storage_offset() + self.numel()) * self.element_size();
  if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  return self;
}

at::Tensor& set_part_of_storage(at::Tensor& self, at::Storage storage, int64_t offset, c10::IntArrayRef sizes,
                                c10::IntArrayRef strides) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (strides.empty())
    impl->set_sizes_contiguous(sizes);
  else
    impl->set_sizes_and_strides(sizes, strides);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
  auto elements = static_cast<int64_t>(storage.nbytes() / self.element_size());
  return set_part_of_storage(self, std::move(storage), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& other) {
  return set_part_of_storage(self, other.storage(), other.storage_offset(), other.sizes(), other.strides());
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  if (wait_is_left_out()) return;
  Lock lock = machine().lock();
  auto* address = static_cast<const char*>(self.storage().unsafeGetStorageImpl()->data_ptr().get());
  if (address) machine().memory(self.device().index()).record_stream(address, machine().schedule.stream(stream));
}

/// Attention by its formula, from operators that the device has.
int64_t sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double,
                   bool, std::optional<double>, bool) {
  constexpr int64_t math = 0;
  return math;
}

}  // namespace

void resize_storage(const c10::Storage& storage, size_t bytes) {
  c10::DeviceGuard guard(storage.device());
  auto* impl = storage.unsafeGetStorageImpl();
  auto data = device_allocator().allocate(bytes);
  auto kept = static_cast<int64_t>(std::min(bytes, impl->nbytes()));
  if (void* old = impl->data_ptr().get(); old && kept > 0) {
    Lock lock = machine().lock();
    enter_copy(lock, storage.device().index(), View::of_bytes(data.get(), kept), View::of_bytes(old, kept), "resize_");
  }
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(bytes);
}

}  // namespace runner::simulated

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace device = runner::simulated;
  m.impl("empty.memory_format", device::empty);
  m.impl("empty_strided", device::empty_strided);
  m.impl("as_strided", device::as_strided);
  m.impl("view", device::view);
  m.impl("_reshape_alias", device::reshape_alias);
  m.impl("resize_", device::resize);
  m.impl("set_.source_Storage", device::set_storage);
  m.impl("set_.source_Storage_storage_offset", device::set_part_of_storage);
  m.impl("set_.source_Tensor", device::set_tensor);
  m.impl("record_stream", device::record_stream);
  m.impl("_fused_sdp_choice", device::sdp_choice);
}
