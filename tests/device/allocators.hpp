// LibTorch's interfaces to device memory and pinned memory.
#pragma once
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>

namespace runner::simulated {

/// Allocates on the calling thread's current device, for its current stream there.
c10::Allocator& device_allocator();
at::HostAllocator& pinned_allocator();

}  // namespace runner::simulated
