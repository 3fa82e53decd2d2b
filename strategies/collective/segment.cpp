#include <c10/util/Exception.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "strategies/collective/operation.hpp"
#include "strategies/collective/segment.hpp"

namespace runner {

namespace {

constexpr size_t round_to_page(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

/// Clock ticks since boot at which a process began; 0 if there is none.
uint64_t process_begun(int pid) {
  char path[64], buffer[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE* file = std::fopen(path, "re");
  if (!file) return 0;
  size_t n = std::fread(buffer, 1, sizeof buffer - 1, file);
  std::fclose(file);
  buffer[n] = 0;
  const char* after_name = std::strrchr(buffer, ')');
  unsigned long long begun = 0;
  char state = 0;
  if (after_name)
    std::sscanf(after_name + 2, "%c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, &begun);
  return state == 'Z' || state == 'X' ? 0 : begun;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int milliseconds) {
  timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0); }

}  // namespace

std::shared_ptr<SharedSegment> SharedSegment::map(int fd, int ranks) {
  size_t bytes = shm_segment_bytes(ranks);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) throw environment_error("cannot map the shared memory of this host's ranks: {}", std::strerror(errno));
  return std::shared_ptr<SharedSegment>(new SharedSegment(static_cast<std::byte*>(data), bytes, ranks));
}

std::shared_ptr<SharedSegment> SharedSegment::allocate(int ranks) {
  size_t bytes = shm_segment_bytes(ranks);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw environment_error("cannot map memory for {} ranks: {}", ranks, std::strerror(errno));
  return std::shared_ptr<SharedSegment>(new SharedSegment(static_cast<std::byte*>(data), bytes, ranks));
}

SharedSegment::~SharedSegment() { ::munmap(data_, bytes_); }

std::byte* SharedSegment::area(int index) const {
  if (index >= shm_areas) throw environment_error("more than {} process groups on one host", shm_areas);
  return data_ + bytes_ / shm_areas * static_cast<size_t>(index);
}

SegmentGroup::SegmentGroup(std::shared_ptr<SharedSegment> segment, int area, int rank, std::vector<int> world_ranks,
                           std::chrono::milliseconds timeout)
    : segment_(std::move(segment)),
      area_(reinterpret_cast<ShmArea*>(segment_->area(area))),
      slots_(segment_->area(area) + round_to_page(sizeof(ShmArea))),
      rank_(rank),
      world_ranks_(std::move(world_ranks)),
      timeout_(timeout),
      // Spinning pays while every rank has a core to itself; otherwise it takes the core from the rank that is waited for.
      spins_(segment_->ranks() <= static_cast<int>(std::thread::hardware_concurrency()) ? 4000 : 0) {
  area_->ranks[rank_].begun = process_begun(::getpid());
  area_->ranks[rank_].pid = ::getpid();
}

std::byte* SegmentGroup::slot(int rank, int half) const {
  return slots_ + (static_cast<size_t>(rank) * 2 + static_cast<size_t>(half)) * shm_chunk_bytes;
}

void SegmentGroup::fail(const std::string& why) const {
  area_->aborted = 1;
  futex_wake_all(area_->generation);
  TORCH_CHECK_WITH(DistBackendError, false, why);
}

void SegmentGroup::abort() {
  area_->aborted = 1;
  futex_wake_all(area_->generation);
}

void SegmentGroup::watch_peers(double waited) const {
  auto doing = describe(area_->ranks[rank_].latest());
  for (int peer = 0; peer < size(); ++peer) {
    const auto& other = area_->ranks[peer];
    int pid = other.pid;
    if (pid == 0 || pid == ::getpid() || process_begun(pid) == other.begun) continue;
    fail(fmt::format("rank {} (pid {}) is gone while rank {} waits in {}", world_ranks_[static_cast<size_t>(peer)], pid,
                     world_ranks_[static_cast<size_t>(rank_)], doing));
  }
  if (waited * 1000 < static_cast<double>(timeout_.count())) return;
  std::vector<std::string> late;
  for (int peer = 0; peer < size(); ++peer) {
    const auto& other = area_->ranks[peer];
    if (other.pid == 0)
      late.push_back(fmt::format("rank {} never joined", world_ranks_[static_cast<size_t>(peer)]));
    else if (other.latest().sequence < area_->ranks[rank_].latest().sequence)
      late.push_back(fmt::format("rank {} is still at {}", world_ranks_[static_cast<size_t>(peer)], describe(other.latest())));
  }
  fail(fmt::format("rank {} waited {} in {}: {}", world_ranks_[static_cast<size_t>(rank_)], format_duration(waited), doing,
                   late.empty() ? "a rank does not answer" : join(late, "; ")));
}

void SegmentGroup::barrier() {
  uint32_t generation = area_->generation.load(std::memory_order_acquire);
  if (area_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size())) {
    area_->arrived.store(0, std::memory_order_relaxed);
    area_->generation.fetch_add(1, std::memory_order_release);
    futex_wake_all(area_->generation);
    return;
  }
  for (int i = 0; i < spins_; ++i) {
    if (area_->generation.load(std::memory_order_acquire) != generation) return;
    __builtin_ia32_pause();
  }
  double begun = steady_seconds();
  while (area_->generation.load(std::memory_order_acquire) == generation) {
    if (area_->aborted) TORCH_CHECK_WITH(DistBackendError, false, "another rank gave up while rank ", world_ranks_[static_cast<size_t>(rank_)], " waits in ",
                                         describe(area_->ranks[rank_].latest()));
    futex_wait(area_->generation, generation, 100);
    double waited = steady_seconds() - begun;
    if (waited > 0.1 && area_->generation.load(std::memory_order_acquire) == generation) watch_peers(waited);
  }
}

void SegmentGroup::check_agreement() const {
  const auto& mine = area_->ranks[rank_].latest();
  for (int peer = 0; peer < size(); ++peer) {
    const auto& other = area_->ranks[peer].operations[mine.sequence % 2];
    if (other.kind == mine.kind && other.bytes == mine.bytes && other.dtype == mine.dtype && other.sequence == mine.sequence) continue;
    fail(fmt::format("ranks diverged: rank {} is in {}, rank {} in {}", world_ranks_[static_cast<size_t>(rank_)], describe(mine),
                     world_ranks_[static_cast<size_t>(peer)], describe(other)));
  }
}

}  // namespace runner
