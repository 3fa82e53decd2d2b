// Process groups from backends, and the seam through which the CUDA module adds NCCL.
#pragma once
#include <torch/torch.h>

#include <chrono>
#include <functional>

#include "strategies/collective/world.hpp"

namespace runner {

/// Wraps a backend so that c10d's own classes (Reducer ...) accept it for tensors on `device`.
ProcessGroup wrap_backend(const c10::intrusive_ptr<c10d::Store>& store, c10::intrusive_ptr<c10d::Backend> backend, at::DeviceType device,
                          c10d::ProcessGroup::BackendType type);

/// Makes an NCCL backend; set by the CUDA module when it is loaded.
using NcclMaker = std::function<c10::intrusive_ptr<c10d::Backend>(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                                  std::chrono::milliseconds timeout)>;
void register_nccl(NcclMaker maker);
const NcclMaker& nccl_maker();

}  // namespace runner
