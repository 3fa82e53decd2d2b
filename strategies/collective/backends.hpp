// Process groups from backends, and the seam through which the CUDA module and plug-ins add theirs.
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
/// The backend for CPU tensors of such a group, without the recording.
c10::intrusive_ptr<c10d::Backend> inner_backend(const ProcessGroup& group);

/// A backend for tensors of any device and strides. It copies them to host memory and calls `inner` there, with contiguous CPU tensors.
c10::intrusive_ptr<c10d::Backend> host_staged(c10::intrusive_ptr<c10d::Backend> inner);

/// Makes a backend whose collectives take tensors in a device's memory.
using CollectivesMaker = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout)>;
/// `name`: Accelerator::collectives. The module or plug-in of a device calls it when it is opened.
void register_collectives(const std::string& name, CollectivesMaker maker);
/// Null if no backend of this name is registered.
CollectivesMaker collectives_maker(const std::string& name);

}  // namespace runner
