// Blocks are profiled on tensors without values, of the device `meta`. These stand for tensors of the device of a plan: modules choose
// the kernels of that device, and a kernel of ours allocates what it would allocate, and computes nothing.
#pragma once
#include <optional>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// The device whose tensors are profiled by tensors without values (on `meta`).
struct Profiled {
  bool host_kernels = true;  ///< as Accelerator::host_kernels
  /// The dtype of autocast. LibTorch has no autocast for `meta`.
  std::optional<torch::ScalarType> autocast = std::nullopt;
};

/// Sets the profiled device of this thread, until the end of the scope. Scopes do not nest.
class ProfiledScope {
 public:
  explicit ProfiledScope(const Profiled& profiled) { current() = &profiled; }
  ~ProfiledScope() { current() = nullptr; }
  ProfiledScope(const ProfiledScope&) = delete;
  /// Null outside of a scope: then a tensor without values is that of a compiler.
  static const Profiled*& current() {
    static thread_local const Profiled* current = nullptr;
    return current;
  }
};

/// Whether a block is being profiled with this tensor.
inline bool is_profiled(const torch::Tensor& x) { return x.is_meta() && ProfiledScope::current(); }
/// Whether the kernels for host memory take the tensor, or the one that it stands for.
inline bool on_host(const torch::Tensor& x) {
  return x.is_cpu() || (is_profiled(x) && ProfiledScope::current()->host_kernels);
}
/// Whether CUDA's kernels take it.
inline bool on_cuda(const torch::Tensor& x) {
  return x.is_cuda() || (is_profiled(x) && !ProfiledScope::current()->host_kernels);
}

}  // namespace runner
