// The device that a rank computes on, described by what it can do. Torch-free.
#pragma once
#include <cstdint>
#include <string>

namespace runner {

/// Code asks for a capability, never for a type. So it takes the same path on every device that has the capability.
struct Accelerator {
  std::string type = "cpu";  ///< LibTorch's name of the device type
  bool own_memory = false;   ///< device memory is separate from host memory
  bool streams = false;      ///< work is queued in streams: copies and collectives can overlap with computation
  bool pinned = false;       ///< copies from and to pinned host memory do not block the host
  bool host_kernels = true;  ///< operators are the CPU's kernels and take their scratch memory from the device's
  /// The backend whose collectives take tensors in the device's memory ("nccl"). Empty: shm or gloo, through host memory.
  std::string collectives = {};
  int64_t workspace_bytes = 0;     ///< that the device's libraries for matrix products keep, from the first step on
  int64_t context_bytes = 0;       ///< of the device's memory that a rank uses before its first tensor
  int64_t communicator_bytes = 0;  ///< and for `collectives`, if there are several ranks
  /// The devices are those of a PJRT plug-in: "tpu" if its platform must have that name, "pjrt" for any. Empty: they are LibTorch's.
  std::string platform = {};

  /// Only for what a user calls by CUDA's names (variables, NVML), and for the kernels that CUDA's libraries choose.
  bool is_cuda() const { return type == "cuda"; }
  /// A noun for one of the devices, in messages.
  std::string noun() const { return is_cuda() ? "CUDA device" : type == "cpu" ? "CPU rank" : type + " device"; }
};

/// CUDA's context uses 300 to 500 MB and each NCCL communicator about 500 MB (Fujii et al. 2024, arXiv 2411.06465).
inline Accelerator cuda_accelerator() {
  constexpr int64_t mebibyte = 1 << 20;
  return {.type = "cuda",
          .own_memory = true,
          .streams = true,
          .pinned = true,
          .host_kernels = false,
          .collectives = "nccl",
          .context_bytes = 500 * mebibyte,
          .communicator_bytes = 500 * mebibyte};
}
/// `name`: a recipe's devices.accelerator, resolved.
inline Accelerator find_accelerator(const std::string& name) {
  if (name == "cuda") return cuda_accelerator();
  return name == "tpu" ? Accelerator{.platform = "tpu"} : Accelerator();
}

}  // namespace runner
