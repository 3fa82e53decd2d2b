// Opens the CUDA module.
#include "runner/base/own_program.hpp"
#include "runner/cuda/module.hpp"
#include "strategies/collective/backends.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

const CudaModule& load_cuda_module() {
  static const CudaModule& module = [&]() -> const CudaModule& {
    const auto& opened = open_module<CudaModule>(
        {.file = "librunner_cuda.so",
         .function = "runner_cuda_module",
         .lack = "has no CUDA module",
         .title = "the CUDA module",
         .setup = "scripts/setup --cuda",
         .visibility = RTLD_GLOBAL});  // libtorch_cpu, which is loaded already, must see what libtorch_cuda registers
    register_collectives("nccl", opened.make_nccl);
    return opened;
  }();
  return module;
}

const CudaModule& use_cuda(int device) {
  const CudaModule& module = load_cuda_module();
  module.set_device(device);
  return module;
}

}  // namespace runner
