// The CUDA module: everything that links CUDA's libraries sits in librunner_cuda.so, which a worker opens only when its
// recipe runs on CUDA. All else stays free of CUDA headers and uses LibTorch's device-neutral interfaces.
#pragma once
#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// What the module does, as a table that it hands out under one C name.
struct CudaModule {
  static constexpr int current_version = 1;
  int version;

  /// Makes `device` the one this thread's CUDA calls go to.
  void (*set_device)(int device);
  /// NCCL among `size` ranks that meet in `store`. One GPU for each rank: NCCL refuses two ranks on one.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                 std::chrono::milliseconds timeout);
  /// The most bytes that tensors held on `device` since the last reset.
  int64_t (*peak_memory_bytes)(int device);
  void (*reset_peak_memory)(int device);
};

/// Opens the module beside the executable (once; later calls return the same). Call it before anything asks LibTorch
/// about CUDA: the first question caches the answer "no CUDA library" for the life of the process. Throws
/// Error(environment).
const CudaModule& load_cuda_module();

/// What a worker on CUDA calls first: opens the module, takes `device` and makes NCCL known to make_world.
const CudaModule& use_cuda(int device);

}  // namespace runner

/// The module's one exported name.
extern "C" const runner::CudaModule* runner_cuda_module();
