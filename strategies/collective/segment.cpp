#include <c10/util/Exception.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"
#include "strategies/collective/operation.hpp"
#include "strategies/collective/segment.hpp"

namespace runner {

namespace {

/// Clock ticks since boot at which a process began; 0 if it has ended.
uint64_t process_begun(int pid) {
  const auto stat = read_process_stat(pid);
  return stat && !stat->has_ended() ? stat->start_time : 0;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int milliseconds) {
  timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

/// Tells the CPU core that this is a spin loop.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

SharedSegment::SharedSegment(int flags, int fd, int ranks) : bytes_(shm_segment_bytes(ranks)), ranks_(ranks) {
  if (ranks > shm_ranks_max)
    throw usage_error("process_group_backend \"shm\" joins up to {} ranks of a host, not {}; take \"gloo\"",
                      shm_ranks_max, ranks);
  void* data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | flags, fd, 0);
  if (data == MAP_FAILED)
    throw environment_error("cannot map the memory that {} ranks share: {}", ranks, std::strerror(errno));
  data_ = static_cast<std::byte*>(data);
}

std::shared_ptr<SharedSegment> SharedSegment::map(int fd, int ranks) {
  return std::shared_ptr<SharedSegment>(new SharedSegment(0, fd, ranks));
}

std::shared_ptr<SharedSegment> SharedSegment::allocate(int ranks) {
  return std::shared_ptr<SharedSegment>(new SharedSegment(MAP_ANONYMOUS, -1, ranks));
}

SharedSegment::~SharedSegment() { ::munmap(data_, bytes_); }

std::byte* SharedSegment::area(int index) const {
  if (index >= shm_areas)
    throw usage_error("process_group_backend \"shm\" has room for {} process groups; take \"gloo\"", shm_areas);
  return data_ + bytes_ / shm_areas * static_cast<size_t>(index);
}

SegmentGroup::SegmentGroup(std::shared_ptr<SharedSegment> segment, int area, int rank, std::vector<int> world_ranks,
                           std::chrono::milliseconds timeout)
    : segment_(std::move(segment)),
      area_(reinterpret_cast<ShmArea*>(segment_->area(area))),
      slots_(segment_->area(area) + shm_slots_offset),
      rank_(rank),
      world_ranks_(std::move(world_ranks)),
      timeout_(timeout),
      // Spinning is fast if every rank has its own core. Otherwise it takes CPU time from the rank for which this one
      // waits.
      spins_(segment_->ranks() <= static_cast<int>(std::thread::hardware_concurrency()) ? 4000 : 0) {
  area_->ranks[rank_].begun = process_begun(::getpid());
  area_->ranks[rank_].pid = ::getpid();
}

std::byte* SegmentGroup::slot(int rank, int half) const {
  return slots_ + (static_cast<size_t>(rank) * 2 + static_cast<size_t>(half)) * shm_chunk_bytes;
}

/// The first reason is kept. A second caller waits until it is written, unless its writer died meanwhile.
void SegmentGroup::set_failure(const std::string& why) const {
  auto& failure = area_->failure;
  uint32_t none = ShmFailure::none;
  if (failure.state.compare_exchange_strong(none, ShmFailure::being_written)) {
    why.copy(failure.why, sizeof failure.why - 1);
    failure.state = ShmFailure::written;
  }
  futex_wake_all(area_->generation);
}

void SegmentGroup::throw_failure() const {
  for (int i = 0; i < 100 && area_->failure.state != ShmFailure::written; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  bool known = area_->failure.state == ShmFailure::written;
  TORCH_CHECK_WITH(DistBackendError, false, known ? area_->failure.why : "another rank gave up");
}

void SegmentGroup::abort() { set_failure(fmt::format("rank {} gave up", world_rank(rank_))); }

std::string SegmentGroup::who_is_late() const {
  std::vector<std::string> late;
  for (int peer = 0; peer < size(); ++peer) {
    const auto& other = area_->ranks[peer];
    if (other.pid == 0)
      late.push_back(fmt::format("rank {} never joined", world_rank(peer)));
    else if (other.latest().sequence < area_->ranks[rank_].latest().sequence)
      late.push_back(fmt::format("rank {} is still at {}", world_rank(peer), describe(other.latest())));
  }
  return late.empty() ? "a rank does not answer" : join(late, "; ");
}

void SegmentGroup::look_around(uint32_t generation, double waited) const {
  auto doing = describe(area_->ranks[rank_].latest());
  std::string why;
  for (int peer = 0; peer < size() && why.empty(); ++peer) {
    const auto& other = area_->ranks[peer];
    int pid = other.pid;
    if (pid == 0 || pid == ::getpid() || process_begun(pid) == other.begun) continue;
    why = fmt::format("rank {} (pid {}) is gone while rank {} waits in {}", world_rank(peer), pid, world_rank(rank_),
                      doing);
  }
  if (why.empty() && waited * 1000 >= static_cast<double>(timeout_.count()))
    why = fmt::format("rank {} waited {} in {}: {}", world_rank(rank_), format_duration(waited), doing, who_is_late());
  if (why.empty() || came(generation)) return;  // a peer may arrive and exit afterwards
  set_failure(why);
  throw_failure();
}

void SegmentGroup::barrier() {
  if (area_->failure.state != ShmFailure::none) throw_failure();
  uint32_t generation = area_->generation.load(std::memory_order_acquire);
  if (area_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size())) {
    area_->arrived.store(0, std::memory_order_relaxed);
    area_->generation.fetch_add(1, std::memory_order_release);
    futex_wake_all(area_->generation);
    return;
  }
  for (int i = 0; i < spins_; ++i) {
    if (came(generation)) return;
    relax();
  }
  double begun = steady_seconds();
  while (!came(generation)) {
    if (area_->failure.state != ShmFailure::none) throw_failure();
    futex_wait(area_->generation, generation, 100);
    double waited = steady_seconds() - begun;
    if (waited > 0.1 && !came(generation)) look_around(generation, waited);
  }
}

void SegmentGroup::check_agreement() const {
  // By parity, not the latest: a peer may have passed this barrier and announced its next call.
  auto parity = area_->ranks[rank_].latest().sequence % 2;
  std::vector<RankOperation> operations;
  for (int peer = 0; peer < size(); ++peer)
    operations.push_back({world_rank(peer), area_->ranks[peer].operations[parity].load()});
  bool same = std::all_of(operations.begin(), operations.end(),
                          [&](const auto& other) { return other.operation == operations.front().operation; });
  if (same) return;
  set_failure(describe_divergence(operations));
  throw_failure();
}

}  // namespace runner
