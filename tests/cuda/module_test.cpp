// Tests of the CUDA module: it loads (or the error has the reason) on any machine, and its functions work on a GPU.
#include <ATen/detail/CUDAHooksInterface.h>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <torch/cuda.h>
#include "runner/cuda/module.hpp"
#include "strategies/collective/backends.hpp"

#include "strategies/collective/libtorch.hpp"
#include "tests/cuda/gpus.hpp"

using namespace runner;
using namespace runner::testing;

// The build determines the expected result: RUNNER_CUDA_MODULE is "none", "built" (with a toolkit, but without all
// libraries of libtorch_cuda) or "complete" (scripts/setup --cuda).
TEST_CASE("the CUDA module loads if it is complete, otherwise the message names the missing part and the remedy") {
  const std::filesystem::path module = std::filesystem::path(RUNNER_BINARY_DIR) / "bin" / "librunner_cuda.so";
  const std::string built = RUNNER_CUDA_MODULE;
  REQUIRE(std::filesystem::exists(module) == (built != "none"));
  auto why = module_problem();
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
  gpus_or_skip();
  const CudaModule& cuda = use_cuda(0);
  auto store = c10::make_intrusive<c10d::HashStore>();
  auto nccl = collectives_maker("nccl")(store, 0, 1, std::chrono::seconds(60));
  cuda.reset_peak_memory(0);
  const int64_t before = cuda.peak_memory_bytes(0);
  constexpr int64_t numel = 1 << 20;
  std::vector<torch::Tensor> summed{torch::full({numel}, 3.0f, torch::kCUDA)}, sent{summed[0].clone()};
  auto gathered = torch::zeros_like(summed[0]), scattered = torch::zeros_like(summed[0]);
  nccl->allreduce(summed)->wait();
  nccl->broadcast(sent)->wait();
  nccl->_allgather_base(gathered, summed[0])->wait();
  nccl->_reduce_scatter_base(scattered, summed[0])->wait();
  torch::cuda::synchronize();
  for (const auto& result : {summed[0], sent[0], gathered, scattered})
    CHECK(result.sum().item<float>() == 3.0f * numel);
  CHECK(cuda.peak_memory_bytes(0) - before >= 4 * numel * int64_t{sizeof(float)});
}
