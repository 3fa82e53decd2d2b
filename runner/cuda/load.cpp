// Opens the CUDA module.
#include <dlfcn.h>
#include <filesystem>

#include "runner/base/error.hpp"
#include "runner/base/own_program.hpp"
#include "runner/cuda/module.hpp"
#include "strategies/collective/backends.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

namespace {

const CudaModule& open_module() {
  const std::filesystem::path path = beside_program("librunner_cuda.so");
  if (!std::filesystem::exists(path))
    throw environment_error(
        "this build has no CUDA module ({} does not exist); run scripts/setup --cuda and build again", path.string());
  // RTLD_GLOBAL: libtorch_cpu, which is already loaded, must see the registrations of libtorch_cuda.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) throw environment_error("cannot load the CUDA module: {}; run scripts/setup --cuda", dlerror());
  auto* entry = reinterpret_cast<decltype(&runner_cuda_module)>(dlsym(library, "runner_cuda_module"));
  if (!entry || entry()->version != CudaModule::current_version)
    throw environment_error("{} belongs to another build than this program; build and install both again",
                            path.string());
  return *entry();
}

}  // namespace

const CudaModule& load_cuda_module() {
  static const CudaModule& module = [&]() -> const CudaModule& {
    const CudaModule& opened = open_module();
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
