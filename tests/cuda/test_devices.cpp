// CUDA devices for the suite that simulated devices also run: a device for each rank with NCCL, and one device for all ranks.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <torch/cuda.h>
#include "runner/base/error.hpp"
#include "runner/cuda/module.hpp"
#include "strategies/collective/backends.hpp"
#include "strategies/collective/libtorch.hpp"
#include "tests/cuda/gpus.hpp"
#include "tests/support/device_suite.hpp"
#include "tests/support/staged_groups.hpp"
#include "tests/support/thread_world.hpp"

namespace runner::testing {

namespace {

/// Makes one rank's groups.
class NcclGroups {
 public:
  explicit NcclGroups(const World& world) : rank_(world.rank), store_(world.store), trace_(world.trace) {}

  /// Null on a rank that is not among `ranks`.
  ProcessGroup make(const std::vector<int>& ranks, const std::string& name, int trace_index) {
    auto position = std::find(ranks.begin(), ranks.end(), rank_);
    if (position == ranks.end()) return {};
    auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
    auto backend = collectives_maker("nccl")(store, static_cast<int>(position - ranks.begin()),
                                             static_cast<int>(ranks.size()), std::chrono::seconds(60));
    return recorded_group(store, backend, at::kCUDA, c10d::ProcessGroup::BackendType::NCCL, trace_, trace_index);
  }
  ProcessGroup make_named(const std::vector<int>& ranks, const std::string& name) {
    return make(ranks, name, trace_->add_group(name, ranks));
  }

 private:
  int rank_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<CollectiveTrace> trace_;
};

/// LibTorch keeps a workspace for each thread that multiplies matrices. After this they exist, in this thread and in the one that
/// runs backward, so they are not counted as memory of a training.
void make_workspaces(torch::Device device) {
  for (auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    auto a = torch::ones({256, 256}, torch::dtype(dtype).device(device).requires_grad(true));
    torch::mm(a, a).sum().backward();
  }
}

void put_on_device(World& world, int device) {
  load_cuda_module().set_device(device);
  world.accelerator = cuda_accelerator();
  world.device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(device));
  make_workspaces(world.device);
  torch::cuda::synchronize(device);
}

void run_with_nccl(int world_size, const std::function<void(World&)>& body) {
  at::getHostAllocator(at::kCUDA)->reset_peak_stats();
  run_ranks(world_size, [&](World& world) {
    put_on_device(world, world.rank);
    auto groups = std::make_shared<NcclGroups>(world);
    std::vector<int> everybody(static_cast<size_t>(world.size));
    std::iota(everybody.begin(), everybody.end(), 0);
    world.group = groups->make(everybody, "world", World::group_index);
    world.make_subgroup = [groups](const std::vector<int>& ranks, const std::string& name) {
      return groups->make_named(ranks, name);
    };
    body(world);
    torch::cuda::synchronize(world.rank);
  });
}

/// All ranks on the first device. NCCL does not allow that, so collectives go through host memory.
void run_on_one_device(int world_size, const std::function<void(World&)>& body) {
  run_ranks(world_size, [&](World& world) {
    put_on_device(world, 0);
    stage_groups(world, at::kCUDA);
    body(world);
    torch::cuda::synchronize(0);
  });
}

MemoryUse use_of(const c10::CachingAllocator::Stat& stat) { return {stat.current, stat.peak}; }

/// The blocks that the allocator of pinned memory has, in use or kept for later. First it gives back those that an earlier training has
/// left. (Its statistic active_bytes, of blocks in use, is wrong in LibTorch 2.11: freed blocks stay counted.)
MemoryUse pinned_use() {
  auto* allocator = at::getHostAllocator(at::kCUDA);
  const int64_t peak = allocator->get_stats().allocated_bytes.peak;
  allocator->empty_cache();
  return {allocator->get_stats().allocated_bytes.current, peak};
}

}  // namespace

std::optional<std::string> module_problem() {
  try {
    load_cuda_module();
    return std::nullopt;
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::environment);
    return error.what();
  }
}

int gpus_or_skip() {
  if (auto why = module_problem()) SKIP(*why);
  if (!torch::cuda::is_available()) SKIP("no CUDA device here");
  use_cuda(0);  // registers NCCL, before ranks run as threads
  return static_cast<int>(torch::cuda::device_count());
}

std::vector<TestDevice> test_devices() {
  const int gpus = gpus_or_skip();
  return {
      {.name = "a GPU for each rank, with NCCL",
       .accelerator = cuda_accelerator(),
       .ranks_most = std::min(gpus, 4),
       .launch = run_with_nccl,
       .memory =
           [](int rank) {
             auto statistics = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(rank));
             return use_of(statistics.requested_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]);
           },
       .reset_peak =
           [](int rank) { c10::getDeviceAllocator(at::kCUDA)->resetPeakStats(static_cast<c10::DeviceIndex>(rank)); },
       .pinned = pinned_use,
       // Not measured on a GPU yet. The prediction leaves out temporary memory of kernels.
       .claim_least = 0.9,
       .claim_most = 1.15},
      {.name = "one GPU for all ranks, collectives through host memory",
       .accelerator = cuda_accelerator(),
       .ranks_most = 4,
       .launch = run_on_one_device}};
}

}  // namespace runner::testing
