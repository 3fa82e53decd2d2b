// Tests of the CUDA module: it loads (or the error has the reason) on any machine, and its functions work on a GPU.
#include <ATen/detail/CUDAHooksInterface.h>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <optional>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <torch/cuda.h>
#include "runner/base/error.hpp"
#include "runner/cuda/module.hpp"
#include "strategies/collective/backends.hpp"

#include "strategies/collective/libtorch.hpp"

using namespace runner;

namespace {

/// The error of loading the module; nullopt if it loads.
std::optional<std::string> problem() {
  try {
    load_cuda_module();
    return std::nullopt;
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::environment);
    return error.what();
  }
}

}  // namespace

// The build determines the expected result: RUNNER_CUDA_MODULE is "none", "built" (with a toolkit, but without all
// libraries of libtorch_cuda) or "complete" (scripts/setup --cuda).
TEST_CASE("the CUDA module loads if it is complete, otherwise the message names the missing part and the remedy") {
  const std::filesystem::path module = std::filesystem::path(RUNNER_BINARY_DIR) / "bin" / "librunner_cuda.so";
  const std::string built = RUNNER_CUDA_MODULE;
  REQUIRE(std::filesystem::exists(module) == (built != "none"));
  auto why = problem();
  if (built == "none") {
    REQUIRE(why);
    CHECK(*why == "this build has no CUDA module (" + module.string() +
                      " does not exist); run scripts/setup --cuda and build again");
    return;
  }
  if (built == "built" && why) {
    CHECK(why->starts_with("cannot load the CUDA module: lib"));
    CHECK(why->ends_with("; run scripts/setup --cuda"));
    return;
  }
  REQUIRE(why.value_or("") == "");                // also without a driver
  CHECK(at::detail::getCUDAHooks().hasCUDART());  // the real hooks, not those that report "no CUDA library"
  CHECK(load_cuda_module().version == CudaModule::current_version);
}

TEST_CASE("NCCL with one rank, the device, and the peak of the allocator", "[gpu]") {
  if (auto why = problem()) SKIP(*why);
  if (!torch::cuda::is_available()) SKIP("no CUDA device here");
  const CudaModule& cuda = use_cuda(0);
  auto store = c10::make_intrusive<c10d::HashStore>();
  auto nccl = nccl_maker()(store, 0, 1, std::chrono::seconds(60));
  cuda.reset_peak_memory(0);
  const int64_t before = cuda.peak_memory_bytes(0);
  std::vector<torch::Tensor> tensors{torch::full({1 << 20}, 3.0f, torch::kCUDA)};
  nccl->allreduce(tensors)->wait();
  torch::cuda::synchronize();
  CHECK(tensors[0].sum().item<float>() == 3.0f * (1 << 20));
  CHECK(cuda.peak_memory_bytes(0) - before >= int64_t{4} << 20);
}
