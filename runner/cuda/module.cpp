// Implementation of librunner_cuda.so: NCCL process groups, statistics of the caching allocator, the current device.
#include "runner/cuda/module.hpp"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace runner {

namespace {

using c10::CachingAllocator::StatType;

/// Initializes CUDA, because the allocator has statistics of a device only after that.
void set_device(int device) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

int64_t peak_memory_bytes(int device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  return stats.allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)].peak;
}

void reset_peak_memory(int device) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
}

}  // namespace

}  // namespace runner

extern "C" const runner::CudaModule* runner_cuda_module() {
  static const runner::CudaModule module{.version = runner::CudaModule::current_version,
                                         .set_device = runner::set_device,
                                         .make_nccl = runner::make_nccl,
                                         .peak_memory_bytes = runner::peak_memory_bytes,
                                         .reset_peak_memory = runner::reset_peak_memory};
  return &module;
}
