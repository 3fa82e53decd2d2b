#include "strategies/collective/world.hpp"

#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "strategies/collective/backends.hpp"
#include "strategies/collective/gloo.hpp"
#include "strategies/collective/shm_backend.hpp"

namespace runner {

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

NcclMaker& nccl_slot() {
  static NcclMaker maker;
  return maker;
}

int variable(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  long value = std::strtol(text, &end, 10);
  if (*end) throw environment_error("the environment variable {} is \"{}\", which is no number", name, text);
  return static_cast<int>(value);
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) ranks[static_cast<size_t>(r)] = r;
  return ranks;
}

/// Joins the store and waits for everybody; the error names who did not come.
StorePtr meet(const WorldOptions& options) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(options.master_port);
  store_options.isServer = options.rank == 0;
  store_options.waitWorkers = false;
  store_options.timeout = options.rendezvous_timeout;
  if (options.rank == 0 && options.listen_fd >= 0) store_options.masterListenFd = options.listen_fd;
  StorePtr store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(options.master_addr, store_options);
    auto key = [](int rank) { return fmt::format("joined/{}", rank); };
    store->set(key(options.rank), std::vector<uint8_t>{1});
    double begun = steady_seconds(), limit = static_cast<double>(options.rendezvous_timeout.count()) / 1000;
    std::vector<std::string> missing;
    do {
      missing.clear();
      for (int rank = 0; rank < options.size; ++rank)
        if (!store->check({key(rank)})) missing.push_back(std::to_string(rank));
      if (missing.empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    } while (steady_seconds() - begun < limit);
    if (!missing.empty())
      throw environment_error("rendezvous at {}:{}: rank{} {} of {} did not come within {}", options.master_addr, options.master_port,
                              missing.size() == 1 ? "" : "s", join(missing, ", "), options.size, format_duration(limit));
  } catch (const c10::Error& error) {
    throw environment_error("rank {} cannot meet the others at {}:{}: {}", options.rank, options.master_addr, options.master_port,
                            error.what_without_backtrace());
  }
  store->setTimeout(options.timeout);
  return store;
}

std::string choose_backend(const WorldOptions& options) {
  bool one_host = options.local_size == options.size;
  std::string backend = options.backend;
  if (backend.empty()) backend = options.accelerator == "cuda" ? "nccl" : one_host && options.shm_fd >= 0 ? "shm" : "gloo";
  if (backend == "mpi") throw usage_error("process_group_backend \"mpi\" is not in LibTorch's wheel; take \"gloo\" (CPU) or \"nccl\" (CUDA)");
  if (backend != "shm" && backend != "gloo" && backend != "nccl")
    throw usage_error("unknown process_group_backend \"{}\"; it may be shm, gloo or nccl", backend);
  if (backend == "nccl" && options.accelerator != "cuda") throw usage_error("process_group_backend \"nccl\" needs CUDA devices; take \"shm\" or \"gloo\"");
  if (backend == "shm" && options.accelerator == "cuda") throw usage_error("process_group_backend \"shm\" is for CPU ranks; take \"nccl\" or \"gloo\"");
  if (backend == "shm" && !one_host) throw usage_error("process_group_backend \"shm\" joins the ranks of one host only; take \"gloo\"");
  if (backend == "nccl" && !nccl_maker()) throw environment_error("this build has no CUDA module, so there is no NCCL; take \"gloo\"");
  return backend;
}

/// Makes groups of one kind; each gets its own part of the store and, for shm, its own area of the segment.
class GroupMaker {
 public:
  GroupMaker(WorldOptions options, StorePtr store) : options_(std::move(options)), store_(std::move(store)) {
    backend_ = choose_backend(options_);
    device_ = options_.accelerator == "cuda" ? at::kCUDA : at::kCPU;
    if (backend_ == "shm") segment_ = SharedSegment::map(options_.shm_fd, options_.local_size);
  }

  ProcessGroup operator()(const std::vector<int>& ranks, const std::string& name, const std::string& backend, at::DeviceType device) {
    int area = areas_++;
    auto where = std::find(ranks.begin(), ranks.end(), options_.rank);
    if (where == ranks.end()) return {};
    int rank = static_cast<int>(where - ranks.begin()), size = static_cast<int>(ranks.size());
    auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
    using Type = c10d::ProcessGroup::BackendType;
    if (backend == "shm") {
      auto group = std::make_unique<SegmentGroup>(segment_, area, rank, ranks, options_.timeout);
      return wrap_backend(store, c10::make_intrusive<ShmBackend>(std::move(group)), device, Type::CUSTOM);
    }
    if (backend == "nccl") return wrap_backend(store, nccl_maker()(store, rank, size, options_.timeout), device, Type::NCCL);
    bool one_host = options_.local_size == options_.size;
    return wrap_backend(store, make_gloo(store, rank, size, one_host, options_.timeout), device, Type::GLOO);
  }

  const std::string& backend() const { return backend_; }
  at::DeviceType device() const { return device_; }

 private:
  WorldOptions options_;
  StorePtr store_;
  std::string backend_;
  at::DeviceType device_ = at::kCPU;
  std::shared_ptr<SharedSegment> segment_;
  int areas_ = 0;
};

}  // namespace

void register_nccl(NcclMaker maker) { nccl_slot() = std::move(maker); }
const NcclMaker& nccl_maker() { return nccl_slot(); }

ProcessGroup wrap_backend(const StorePtr& store, c10::intrusive_ptr<c10d::Backend> backend, at::DeviceType device,
                          c10d::ProcessGroup::BackendType type) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  group->setDefaultBackend(type);
  group->setBackend(device, type, backend);
  return group;
}

WorldOptions world_options_from_environment() {
  WorldOptions options;
  options.rank = variable("RANK", 0);
  options.size = variable("WORLD_SIZE", 1);
  options.local_rank = variable("LOCAL_RANK", 0);
  options.local_size = variable("LOCAL_WORLD_SIZE", options.size);
  options.node_rank = variable("NODE_RANK", 0);
  options.num_nodes = std::max(1, options.size / std::max(1, options.local_size));
  if (const char* address = std::getenv("MASTER_ADDR")) options.master_addr = address;
  options.master_port = variable("MASTER_PORT", 0);
  options.listen_fd = variable("RUNNER_LISTEN_FD", -1);
  options.shm_fd = variable("RUNNER_SHM_FD", -1);
  return options;
}

World make_world(const WorldOptions& options) {
  World world;
  world.rank = options.rank;
  world.size = options.size;
  world.local_rank = options.local_rank;
  world.local_size = options.local_size;
  world.node_rank = options.node_rank;
  world.num_nodes = options.num_nodes;
  world.device = options.accelerator == "cuda" ? torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(options.cuda_index))
                                               : torch::Device(torch::kCPU);
  if (options.size == 1) {
    world.store = c10::make_intrusive<c10d::HashStore>();
    auto segment = SharedSegment::allocate(1);
    auto group = std::make_unique<SegmentGroup>(segment, 0, 0, std::vector<int>{0}, options.timeout);
    world.group = world.control = wrap_backend(world.store, c10::make_intrusive<ShmBackend>(std::move(group)), at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM);
    world.make_subgroup = [group = world.group](const std::vector<int>&, const std::string&) { return group; };
    return world;
  }
  world.store = meet(options);
  auto maker = std::make_shared<GroupMaker>(options, world.store);
  auto everybody = all_ranks(options.size);
  world.group = (*maker)(everybody, "world", maker->backend(), maker->device());
  world.control = maker->device() == at::kCPU ? world.group : (*maker)(everybody, "control", "gloo", at::kCPU);
  world.make_subgroup = [maker](const std::vector<int>& ranks, const std::string& name) {
    return (*maker)(ranks, name, maker->backend(), maker->device());
  };
  return world;
}

}  // namespace runner
