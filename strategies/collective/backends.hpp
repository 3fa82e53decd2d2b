// Process groups from backends, and the seam through which the CUDA module adds NCCL.
#pragma once
#include <chrono>
#include <functional>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

/// A group for tensors on `device`. It records every call in `trace`, under the
/// group number `index`.
ProcessGroup recorded_group(const c10::intrusive_ptr<c10d::Store>& store, c10::intrusive_ptr<c10d::Backend> backend,
                            at::DeviceType device, c10d::ProcessGroup::BackendType type,
                            std::shared_ptr<CollectiveTrace> trace, int index);

/// Makes an NCCL backend; set by the CUDA module when it is loaded.
using NcclMaker = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout)>;
void register_nccl(NcclMaker maker);
const NcclMaker& nccl_maker();

}  // namespace runner
