// Operators on tensors without values (device `meta`), as block_recorder.cpp needs them. LibTorch has no such forms of them in C++. They
// allocate what the kernels of devices allocate, and compute nothing.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace runner {

/// Registers the operators of this file, once. Thread-safe.
void register_profiled_operators();

/// While it exists, operators of this thread on tensors without values also allocate, for their duration, the copies in another dtype that
/// the CPU's kernels make of arguments whose dtypes differ. Calls `settle` for each result.
class ConvertingScope {
 public:
  using Settle = void (*)(const at::Tensor&);
  explicit ConvertingScope(Settle settle) { this_thread() = settle; }
  static Settle& this_thread() {
    static thread_local Settle settle = nullptr;
    return settle;
  }

 private:
  c10::impl::IncludeDispatchKeyGuard include_{c10::DispatchKey::TESTING_ONLY_GenericMode};
};

}  // namespace runner
