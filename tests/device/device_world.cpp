#include "tests/device/device_world.hpp"

#include <numeric>

#include "strategies/collective/backends.hpp"
#include "tests/device/collectives.hpp"
#include "tests/device/simulation.hpp"
#include "tests/support/thread_world.hpp"

namespace runner::simulated {

namespace {

/// The communicators of all ranks, in the order in which every rank makes its groups.
class Communicators {
 public:
  std::shared_ptr<Communicator> get(size_t index, int size) {
    Lock lock = machine().lock();
    while (made_.size() <= index) made_.push_back(nullptr);
    if (!made_[index]) made_[index] = std::make_shared<Communicator>(size);
    return made_[index];
  }
  /// A rank has thrown `error`.
  void abort(std::exception_ptr error) {
    Lock lock = machine().lock();
    if (!first_) first_ = std::move(error);
    for (auto& communicator : made_)
      if (communicator) communicator->abort();
    machine().schedule.wake();
  }
  /// What the first rank has thrown, not what that made others throw.
  const std::exception_ptr& first() const { return first_; }

 private:
  std::exception_ptr first_;
  std::vector<std::shared_ptr<Communicator>> made_;
};

/// Makes one rank's groups.
class Groups {
 public:
  Groups(Communicators& communicators, const World& world)
      : communicators_(communicators), rank_(world.rank), store_(world.store), trace_(world.trace) {}

  ProcessGroup make(const std::vector<int>& ranks, int trace_index) {
    size_t index = made_++;
    auto position = std::find(ranks.begin(), ranks.end(), rank_);
    if (position == ranks.end()) return {};
    auto communicator = communicators_.get(index, static_cast<int>(ranks.size()));
    auto backend = make_backend(communicator, static_cast<int>(position - ranks.begin()), rank_);
    return recorded_group(store_, backend, device_type, c10d::ProcessGroup::BackendType::CUSTOM, trace_, trace_index);
  }
  ProcessGroup make_named(const std::vector<int>& ranks, const std::string& name) {
    return make(ranks, trace_->add_group(name, ranks));
  }

 private:
  Communicators& communicators_;
  int rank_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<CollectiveTrace> trace_;
  size_t made_ = 0;
};

void put_on_device(World& world, Communicators& communicators) {
  choose_device(world.rank);
  world.accelerator = simulated_accelerator();
  world.device = torch::Device(device_type, static_cast<c10::DeviceIndex>(world.rank));
  auto groups = std::make_shared<Groups>(communicators, world);
  std::vector<int> everybody(static_cast<size_t>(world.size));
  std::iota(everybody.begin(), everybody.end(), 0);
  world.group = groups->make(everybody, World::group_index);
  world.make_subgroup = [groups](const std::vector<int>& ranks, const std::string& name) {
    return groups->make_named(ranks, name);
  };
}

}  // namespace

void run_on_devices(int world_size, const std::function<void(World&)>& body) {
  TORCH_CHECK(world_size <= device_count, "there are ", device_count, " simulated devices");
  Communicators communicators;
  try {
    testing::run_ranks(world_size, [&](World& world) {
      try {
        put_on_device(world, communicators);
        body(world);
      } catch (...) {
        communicators.abort(std::current_exception());
        throw;
      }
    });
  } catch (...) {
    if (communicators.first()) std::rethrow_exception(communicators.first());
    throw;
  }
  wait_for_devices();
}

}  // namespace runner::simulated
