// The CUDA module, librunner_cuda.so. All code that links CUDA libraries is in it, and a worker opens it only if its
// recipe runs on CUDA. Other code uses LibTorch's device-neutral interfaces without CUDA headers.
#pragma once
#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// The functions of the module. It exports this table under one C name.
struct CudaModule {
  static constexpr int current_version = 1;
  int version;

  /// Sets the CUDA device of this thread.
  void (*set_device)(int device);
  /// An NCCL group of `size` ranks that connect through `store`. Each rank needs a different GPU: NCCL does not support
  /// two ranks on one.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                 std::chrono::milliseconds timeout);
  /// Peak bytes of tensors on `device` since the last reset.
  int64_t (*peak_memory_bytes)(int device);
  void (*reset_peak_memory)(int device);
};

/// Opens the module in the executable's folder. Later calls return the same module. Call it before anything queries
/// LibTorch about CUDA: LibTorch caches the answer "no CUDA library" until the process ends. Throws Error(environment).
const CudaModule& load_cuda_module();

/// The first call of a worker on CUDA: opens the module, sets `device`, and registers NCCL for make_world.
const CudaModule& use_cuda(int device);

}  // namespace runner

/// The only exported name of the module.
extern "C" const runner::CudaModule* runner_cuda_module();
