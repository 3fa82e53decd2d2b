#include "tests/device/view.hpp"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

namespace runner::simulated {

namespace {

View with_shape_of(const at::Tensor& tensor) {
  return {
      .defined = true, .sizes = tensor.sizes().vec(), .strides = tensor.strides().vec(), .dtype = tensor.scalar_type()};
}

}  // namespace

View View::of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  View view = with_shape_of(tensor);
  if (tensor.is_cpu()) {
    view.host = tensor.clone();
    return view;
  }
  auto* begin = static_cast<char*>(tensor.storage().unsafeGetStorageImpl()->data_ptr().get());
  if (begin) view.address = begin + tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
  return view;
}

View View::of_pinned(const at::Tensor& tensor) {
  View view = with_shape_of(tensor);
  view.address = static_cast<char*>(tensor.data_ptr());
  return view;
}

View View::of_bytes(void* address, int64_t count) {
  return {
      .defined = true, .address = static_cast<char*>(address), .sizes = {count}, .strides = {1}, .dtype = at::kByte};
}

int64_t View::numel() const {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

int64_t View::span_bytes() const {
  if (numel() == 0) return 0;
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  return (last + 1) * static_cast<int64_t>(c10::elementSize(dtype));
}

at::Tensor View::on_host() const {
  if (!defined || host.defined()) return host;
  auto options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  if (numel() == 0) return at::empty_strided(sizes, strides, options);
  return at::from_blob(machine().real(address), sizes, strides, options);
}

void View::require_memory(const char* what) const {
  if (!defined || host.defined() || numel() == 0) return;
  TORCH_CHECK(address, "simulated device: `", what, "` uses a tensor whose storage is empty");
  TORCH_CHECK(machine().has(address, address + span_bytes()), "simulated device: `", what,
              "` goes beyond the end of its tensor's memory");
}

void View::note(Stream& stream, bool writes, const char* what) const {
  if (!defined || host.defined()) return;
  machine().note_use(stream, {address, address + span_bytes(), writes, what});
}

}  // namespace runner::simulated
