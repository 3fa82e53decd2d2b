#include "tests/support/thread_world.hpp"

#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "strategies/collective/backends.hpp"
#include "strategies/collective/shm_backend.hpp"

namespace runner::testing {

namespace {

using ShmBackends = std::vector<c10::intrusive_ptr<c10d::Backend>>;

/// State that the threads share.
struct Meeting {
  std::shared_ptr<SharedSegment> segment;
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::exception_ptr first;
};

/// Makes one rank's groups and keeps their backends in `backends`.
class ThreadGroups {
 public:
  ThreadGroups(Meeting& meeting, int rank, std::shared_ptr<CollectiveTrace> trace, ShmBackends& backends)
      : store_(meeting.store),
        areas_(meeting.segment, rank, meeting.timeout),
        trace_(std::move(trace)),
        backends_(backends) {}

  ProcessGroup make(const std::vector<int>& ranks, const std::string& name) {
    int index = trace_->add_group(name, ranks);
    auto group = areas_.next(ranks, name);
    if (!group) return {};
    backends_.push_back(shm_backend(std::move(group)));
    return wrap(index);
  }
  /// The newest group, with its own trace.
  ProcessGroup again(const std::vector<int>& ranks, const std::string& name) {
    return wrap(trace_->add_group(name, ranks));
  }

 private:
  ProcessGroup wrap(int index) {
    return recorded_group(store_, backends_.back(), at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, trace_, index);
  }

  c10::intrusive_ptr<c10d::Store> store_;
  SegmentAreas areas_;
  std::shared_ptr<CollectiveTrace> trace_;
  ShmBackends& backends_;
};

World make_thread_world(Meeting& meeting, int rank, int size, ShmBackends& backends) {
  World world;
  world.rank = rank;
  world.size = size;
  world.store = meeting.store;
  world.trace = std::make_shared<CollectiveTrace>(rank);
  auto groups = std::make_shared<ThreadGroups>(meeting, rank, world.trace, backends);
  std::vector<int> everybody;
  for (int r = 0; r < size; ++r) everybody.push_back(r);
  world.group = groups->make(everybody, "world");
  world.control = groups->again(everybody, "control");
  world.make_subgroup = [groups](const std::vector<int>& ranks, const std::string& name) {
    return groups->make(ranks, name);
  };
  return world;
}

}  // namespace

void run_ranks(int world_size, const std::function<void(World&)>& body, std::chrono::milliseconds timeout) {
  Meeting meeting;
  meeting.segment = SharedSegment::allocate(world_size);
  meeting.timeout = timeout;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] {
      ShmBackends backends;
      try {
        World world = make_thread_world(meeting, rank, world_size, backends);
        body(world);
      } catch (...) {
        std::lock_guard lock(meeting.mutex);
        if (!meeting.first) meeting.first = std::current_exception();
        for (auto& backend : backends) backend->abort();
      }
    });
  for (auto& thread : threads) thread.join();
  if (meeting.first) std::rethrow_exception(meeting.first);
}

}  // namespace runner::testing
