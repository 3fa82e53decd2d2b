// What a rank computes on, described by what it can do. Torch-free.
#pragma once
#include <string>

namespace runner {

/// Code asks for a capability, never for a type. So it takes the same path on every device that has the capability.
struct Accelerator {
  std::string type = "cpu";  ///< LibTorch's name of the device type
  bool own_memory = false;   ///< device memory is separate from host memory
  bool streams = false;      ///< work is queued in streams: copies and collectives can overlap with computation
  bool pinned = false;       ///< copies from and to pinned host memory do not block the host
  bool host_kernels = true;  ///< operators are the CPU's kernels and take their scratch memory from the device's
  /// The backend whose collectives run in streams ("nccl"). Empty: shm or gloo.
  std::string collectives = {};
  int64_t workspace_bytes = 0;  ///< that the device's libraries for matrix products keep, from the first step on
  /// The devices are those of a PJRT plug-in: "tpu" if its platform must have that name, "pjrt" for any. Empty: they are LibTorch's.
  std::string platform = {};
};

inline Accelerator cuda_accelerator() {
  return {.type = "cuda",
          .own_memory = true,
          .streams = true,
          .pinned = true,
          .host_kernels = false,
          .collectives = "nccl"};
}
/// `name`: a recipe's devices.accelerator, resolved.
inline Accelerator find_accelerator(const std::string& name) {
  if (name == "cuda") return cuda_accelerator();
  return name == "tpu" ? Accelerator{.platform = "tpu"} : Accelerator();
}

}  // namespace runner
