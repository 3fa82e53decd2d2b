// A tensor's bytes as kernels see them: addresses and shapes that keep nothing alive, so that memory which is freed too
// early is really gone when the kernel runs.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "tests/device/machine.hpp"

namespace runner::simulated {

struct View {
  bool defined = false;
  char* address = nullptr;  ///< as the tensor has it; null if its storage is empty
  std::vector<int64_t> sizes = {}, strides = {};
  at::ScalarType dtype = at::kFloat;
  at::Tensor host = {};  ///< a CPU tensor's values at the call; then there is no address

  /// Of a tensor on the device, or of a CPU tensor, whose values are copied now.
  static View of(const at::Tensor& tensor);
  /// Of pinned memory, which is used when the kernel runs.
  static View of_pinned(const at::Tensor& tensor);
  /// `count` bytes.
  static View of_bytes(void* address, int64_t count);

  int64_t numel() const;
  /// From the first element to the end of the last one.
  int64_t span_bytes() const;
  /// A CPU tensor over the bytes where they really are; undefined if this is.
  at::Tensor on_host() const;
  /// Throws if the tensor has elements but no memory for them.
  void require_memory(const char* what) const;
  /// Notes that the task entered into `stream` last uses it.
  void note(Stream& stream, bool writes, const char* what) const;
};

}  // namespace runner::simulated
