#include "strategies/collective/world.hpp"

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runner/base/error.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"
#include "strategies/collective/backends.hpp"
#include "strategies/collective/divergence_watch.hpp"
#include "strategies/collective/gloo.hpp"
#include "strategies/collective/shm_backend.hpp"

namespace runner {

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// The backends that modules and plug-ins have registered, by name.
std::map<std::string, CollectivesMaker>& registered_collectives() {
  static std::map<std::string, CollectivesMaker> makers;
  return makers;
}

std::mutex& registry_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// The numbers of a list "0,1". Without the variable, none.
std::vector<int> numbers(const char* name) {
  std::vector<int> list;
  const char* text = std::getenv(name);
  for (const char* begin = text; begin && *begin;) {
    char* end = nullptr;
    list.push_back(static_cast<int>(std::strtol(begin, &end, 10)));
    if (end == begin || (*end && *end != ','))
      throw environment_error("the environment variable {} is \"{}\", which is not a number", name, text);
    begin = *end ? end + 1 : end;
  }
  return list;
}

int variable(const char* name, int otherwise) {
  const auto list = numbers(name);
  return list.empty() ? otherwise : list.front();
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) ranks[static_cast<size_t>(r)] = r;
  return ranks;
}

/// Each rank makes three requests, whatever the number of ranks. Only after the deadline it asks who is missing.
void await_all(c10d::Store& store, const WorldOptions& options) {
  auto key = [](int rank) { return fmt::format("joined/{}", rank); };
  const std::vector<uint8_t> yes{1};
  store.set(key(options.rank), yes);
  if (store.add("joined", 1) == options.size) store.set("all joined", yes);
  try {
    return store.wait({"all joined"}, options.rendezvous_timeout);
  } catch (const c10::DistStoreError&) {
  }
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank)
    if (!store.check({key(rank)})) missing.push_back(rank);
  if (missing.empty()) return;
  throw environment_error("rendezvous at {}:{}: {} did not connect within {}", options.master_addr, options.master_port,
                          name_ranks(missing, options.size, options.local_size),
                          format_duration(static_cast<double>(options.rendezvous_timeout.count()) / 1000));
}

/// Connects to the store and waits for all ranks. The error names the ranks that did not join.
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
    await_all(*store, options);
  } catch (const c10::Error& error) {
    throw environment_error("rank {} cannot meet the others at {}:{}: {}", options.rank, options.master_addr,
                            options.master_port, error.what_without_backtrace());
  }
  store->setTimeout(options.timeout);
  return store;
}

std::string purpose(const WorldOptions& options) { return fmt::format("rank {} of {}", options.rank, options.size); }

/// Files of a rank without connections to other ranks. Rank 0 hosts the store, to which each rank has up to four connections.
int64_t base_descriptors(const WorldOptions& options) {
  return 256 * options.ranks_of_process + (options.rank < options.ranks_of_process ? 4 * options.size : 0);
}

/// The planner has refused backends that do not suit the devices and hosts (resolve_backend).
std::string choose_backend(const WorldOptions& options) {
  std::string backend = options.backend;
  if (backend.empty())
    backend = !options.accelerator.collectives.empty() ? options.accelerator.collectives
              : options.shm_fd >= 0                    ? "shm"
                                                       : "gloo";
  if (backend == "nccl" && !collectives_maker(backend))
    throw environment_error("this build has no CUDA module, so there is no NCCL; take \"gloo\"");
  return backend;
}

/// Makes the groups of a world. Each has its own prefix in the store and, for shm, its own area of the segment.
class GroupMaker {
 public:
  GroupMaker(WorldOptions options, StorePtr store, std::shared_ptr<CollectiveTrace> trace)
      : options_(std::move(options)), store_(std::move(store)), trace_(std::move(trace)) {
    backend_ = choose_backend(options_);
    device_ = torch::Device(options_.accelerator.type).type();
    if (backend_ == "shm")
      areas_.emplace(SharedSegment::map(options_.shm_fd, options_.size), options_.rank, options_.timeout);
  }

  /// For tensors on the ranks' devices.
  ProcessGroup main(const std::vector<int>& ranks, const std::string& name) {
    int index = trace_->add_group(name, ranks);
    return group(index, name, staged(make_backend(ranks, name, backend_)), backend_, device_);
  }

  /// For CPU tensors, over all ranks. It uses the backend of `world` if that supports CPU tensors.
  ProcessGroup control(const std::vector<int>& ranks, const ProcessGroup& world) {
    const std::string name = "control";
    int index = trace_->add_group(name, ranks);
    if (device_ != at::kCPU) return group(index, name, make_backend(ranks, name, "gloo"), "gloo", at::kCPU);
    auto inner = inner_backend(world);
    return group(index, name, inner, backend_, at::kCPU);
  }

  const std::string& backend() const { return backend_; }

 private:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

  /// Null on a rank that is not among `ranks`.
  BackendPtr make_backend(const std::vector<int>& ranks, const std::string& name, const std::string& backend) {
    if (backend == "shm") {
      auto group = areas_->next(ranks, name);
      if (!group) return {};
      return shm_backend(std::move(group));
    }
    auto where = std::find(ranks.begin(), ranks.end(), options_.rank);
    if (where == ranks.end()) return {};
    int rank = static_cast<int>(where - ranks.begin()), size = static_cast<int>(ranks.size());
    auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
    if (const auto make = collectives_maker(backend)) return make(store, rank, size, options_.timeout);
    descriptors_ += size * options_.ranks_of_process;
    raise_descriptor_limit(descriptors_, purpose(options_));
    return make_gloo(store, rank, size, options_.node_address, options_.timeout);
  }

  /// Shared memory and Gloo take CPU tensors. LibTorch's Gloo also takes those of CUDA.
  BackendPtr staged(BackendPtr backend) const {
    const bool takes_device =
        device_ == at::kCPU || collectives_maker(backend_) || (backend_ == "gloo" && device_ == at::kCUDA);
    if (!backend || takes_device) return backend;
    return host_staged(std::move(backend));
  }

  ProcessGroup group(int index, const std::string& name, const BackendPtr& inner, const std::string& backend,
                     at::DeviceType device) {
    if (!inner) return {};
    using Type = c10d::ProcessGroup::BackendType;
    auto type = backend == "nccl" ? Type::NCCL : backend == "gloo" ? Type::GLOO : Type::CUSTOM;
    return recorded_group(c10::make_intrusive<c10d::PrefixStore>(name, store_), inner, device, type, trace_, index);
  }

  WorldOptions options_;
  int64_t descriptors_ = base_descriptors(options_);  ///< at most, of Gloo's connections and all else
  StorePtr store_;
  std::shared_ptr<CollectiveTrace> trace_;
  std::string backend_;
  at::DeviceType device_ = at::kCPU;
  std::optional<SegmentAreas> areas_;  ///< for shm
};

/// A world of one rank.
void make_lone_groups(World& world, std::chrono::milliseconds timeout) {
  world.store = c10::make_intrusive<c10d::HashStore>();
  SegmentAreas areas(SharedSegment::allocate(1), 0, timeout);
  auto backend = shm_backend(areas.next({0}, "world"));
  auto group = [&](const std::string& name) {
    int index = world.trace->add_group(name, {0});
    return recorded_group(world.store, backend, at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, world.trace, index);
  };
  world.group = group("world");
  world.control = group("control");
  world.make_subgroup = [group = world.group](const std::vector<int>&, const std::string&) { return group; };
}

}  // namespace

void register_collectives(const std::string& name, CollectivesMaker maker) {
  const std::lock_guard lock(registry_mutex());
  registered_collectives()[name] = std::move(maker);
}

CollectivesMaker collectives_maker(const std::string& name) {
  const std::lock_guard lock(registry_mutex());
  const auto found = registered_collectives().find(name);
  return found == registered_collectives().end() ? nullptr : found->second;
}

void barrier(const ProcessGroup& group) { group->getDefaultBackend()->barrier({})->wait(); }

WorldOptions world_options_from_environment() {
  WorldOptions options;
  options.rank = variable("RANK", 0);
  options.size = variable("WORLD_SIZE", 1);
  options.local_size = variable("LOCAL_WORLD_SIZE", options.size);
  options.num_nodes = std::max(1, options.size / std::max(1, options.local_size));
  if (const char* address = std::getenv("MASTER_ADDR")) options.master_addr = address;
  options.master_port = variable("MASTER_PORT", 0);
  options.listen_fd = variable("RUNNER_LISTEN_FD", -1);
  options.shm_fd = variable("RUNNER_SHM_FD", -1);
  options.device_index = variable("RUNNER_DEVICE_INDEX", variable("LOCAL_RANK", 0));
  if (const char* address = std::getenv("RUNNER_NODE_ADDRESS")) options.node_address = address;
  return options;
}

std::vector<WorldOptions> world_options_of_threads() {
  std::vector<WorldOptions> list(static_cast<size_t>(variable("RUNNER_RANKS_OF_WORKER", 1)),
                                 world_options_from_environment());
  const auto devices = numbers("RUNNER_DEVICE_INDEX");
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].rank += static_cast<int>(i);
    list[i].ranks_of_process = static_cast<int>(list.size());
    if (i > 0) list[i].listen_fd = -1;
    if (i < devices.size()) list[i].device_index = devices[i];
  }
  return list;
}

World make_world(const WorldOptions& options) {
  World world;
  world.rank = options.rank;
  world.size = options.size;
  world.accelerator = options.accelerator;
  world.device = torch::Device(options.accelerator.type);
  if (!world.device.is_cpu()) world.device.set_index(static_cast<c10::DeviceIndex>(options.device_index));
  world.trace = std::make_shared<CollectiveTrace>(options.rank);
  if (options.size == 1) {
    make_lone_groups(world, options.timeout);
    return world;
  }
  raise_descriptor_limit(base_descriptors(options), purpose(options));
  world.store = meet(options);
  auto maker = std::make_shared<GroupMaker>(options, world.store, world.trace);
  auto everybody = all_ranks(options.size);
  world.group = maker->main(everybody, "world");
  world.control = maker->control(everybody, world.group);
  world.make_subgroup = [maker](const std::vector<int>& ranks, const std::string& name) {
    return maker->main(ranks, name);
  };
  if (options.on_diverged)
    world.watch = std::make_shared<DivergenceWatch>(world.trace, world.store,
                                                    DivergenceWatch::Options{.rank = options.rank,
                                                                             .size = options.size,
                                                                             .compares = maker->backend() != "shm",
                                                                             .patience = options.divergence_patience,
                                                                             .late_after = options.late_after,
                                                                             .found = options.on_diverged,
                                                                             .late = options.on_late});
  return world;
}

}  // namespace runner
