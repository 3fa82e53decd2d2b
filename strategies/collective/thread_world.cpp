#include "strategies/collective/thread_world.hpp"

#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "strategies/collective/backends.hpp"
#include "strategies/collective/shm_backend.hpp"

namespace runner {

namespace {

/// What the threads share.
struct Meeting {
  std::shared_ptr<SharedSegment> segment;
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::vector<c10::intrusive_ptr<ShmBackend>> backends;
  std::exception_ptr first;
};

World make_thread_world(Meeting& meeting, int rank, int size) {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.store = meeting.store;
  auto areas = std::make_shared<int>(0);
  world.make_subgroup = [&meeting, rank, areas](const std::vector<int>& ranks, const std::string&) -> ProcessGroup {
    int area = (*areas)++;
    auto where = std::find(ranks.begin(), ranks.end(), rank);
    if (where == ranks.end()) return {};
    auto group = std::make_unique<SegmentGroup>(meeting.segment, area, static_cast<int>(where - ranks.begin()), ranks, std::chrono::seconds(60));
    auto backend = c10::make_intrusive<ShmBackend>(std::move(group));
    std::lock_guard lock(meeting.mutex);
    meeting.backends.push_back(backend);
    return wrap_backend(meeting.store, backend, at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM);
  };
  std::vector<int> everybody;
  for (int r = 0; r < size; ++r) everybody.push_back(r);
  world.group = world.control = world.make_subgroup(everybody, "world");
  return world;
}

}  // namespace

void run_ranks(int world_size, const std::function<void(World&)>& body) {
  Meeting meeting;
  meeting.segment = SharedSegment::allocate(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        World world = make_thread_world(meeting, rank, world_size);
        body(world);
      } catch (...) {
        std::lock_guard lock(meeting.mutex);
        if (!meeting.first) meeting.first = std::current_exception();
        for (auto& backend : meeting.backends) backend->abort();
      }
    });
  for (auto& thread : threads) thread.join();
  meeting.backends.clear();
  if (meeting.first) std::rethrow_exception(meeting.first);
}

}  // namespace runner
