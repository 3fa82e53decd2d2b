// Which devices LibTorch has a fused kernel for. For other devices it decomposes the operator, or refuses it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner {

class FusedKernel {
 public:
  /// `name`: of an operator without overloads, "aten::_fused_rms_norm".
  explicit FusedKernel(const char* name) : operator_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "")) {}

  /// Whether there is one for the tensor's device.
  bool serves(const torch::Tensor& tensor) const {
    if (is_profiled(tensor)) return on_cuda(tensor) || operator_.hasKernelForDispatchKey(c10::DispatchKey::CPU);
    return operator_.hasKernelForDispatchKey(c10::highestPriorityBackendTypeId(tensor.key_set()));
  }

 private:
  c10::OperatorHandle operator_;
};

}  // namespace runner
