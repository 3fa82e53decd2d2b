#include <c10/util/Exception.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

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

SegmentGroup::SegmentGroup(std::shared_ptr<SharedSegment> segment, size_t offset, int rank,
                           std::vector<int> world_ranks, std::string name, std::chrono::milliseconds timeout,
                           std::shared_ptr<const SegmentPlaces> places)
    : segment_(std::move(segment)),
      area_(reinterpret_cast<ShmArea*>(segment_->data() + offset)),
      ranks_(reinterpret_cast<ShmRank*>(segment_->data() + offset + shm_ranks_offset)),
      small_slots_(segment_->data() + offset + shm_small_offset(static_cast<int>(world_ranks.size()))),
      slots_(segment_->data() + offset + shm_slots_offset(static_cast<int>(world_ranks.size()))),
      rank_(rank),
      world_ranks_(std::move(world_ranks)),
      name_(std::move(name)),
      timeout_(timeout),
      places_(std::move(places)),
      // Spinning is fast if every rank has its own core. Otherwise it takes CPU time from the rank for which this one
      // waits.
      spins_(segment_->ranks() <= static_cast<int>(std::thread::hardware_concurrency()) ? 4000 : 0),
      // Together the ranks of a host look at most 640 times a second.
      look_every_ms_(std::max(100, 100 * segment_->ranks() / 64)) {
  ranks_[rank_].begun = process_begun(::getpid());
  ranks_[rank_].pid = ::getpid();
}

std::byte* SegmentGroup::slot(int rank, int half) const {
  return slots_ + (static_cast<size_t>(rank) * 2 + static_cast<size_t>(half)) * shm_chunk_bytes;
}

std::byte* SegmentGroup::small_slot(int rank, int half) const {
  return small_slots_ + (static_cast<size_t>(rank) * 2 + static_cast<size_t>(half)) * shm_small_bytes;
}

/// The first reason is kept. A second caller waits until it is written, unless its writer died meanwhile.
void SegmentGroup::set_failure(const std::string& why) const {
  auto& failure = area_->failure;
  uint32_t none = ShmFailure::none;
  if (failure.state.compare_exchange_strong(none, ShmFailure::being_written)) {
    why.copy(failure.why, sizeof failure.why - 1);
    failure.state = ShmFailure::written;
  }
  for (auto* word : {&area_->generation, &area_->ring.filled, &area_->ring.emptied}) futex_wake_all(*word);
}

void SegmentGroup::throw_failure() const {
  for (int i = 0; i < 100 && area_->failure.state != ShmFailure::written; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  bool known = area_->failure.state == ShmFailure::written;
  TORCH_CHECK_WITH(DistBackendError, false, known ? area_->failure.why : "another rank gave up");
}

void SegmentGroup::abort() { set_failure(fmt::format("rank {} gave up", world_rank(rank_))); }

std::string SegmentGroup::text_of(const Operation& operation) const {
  return describe(operation) + (operation.kind == Collective::transfer ? " of " + name_ : "");
}

std::string SegmentGroup::who_is_late() const {
  std::vector<std::pair<std::string, std::vector<int>>> late;  // what is said, and of whom
  auto add = [&](int rank, const std::string& text) {
    auto party = std::ranges::find(late, text, &std::pair<std::string, std::vector<int>>::first);
    if (party == late.end()) party = late.insert(late.end(), {text, {}});
    party->second.push_back(rank);
  };
  const auto ours = ranks_[rank_].latest();
  for (int peer = 0; peer < size(); ++peer) {
    const auto theirs = ranks_[peer].latest();
    if (ranks_[peer].pid == 0)
      add(world_rank(peer), " never joined");
    else if (theirs.sequence < ours.sequence)
      add(world_rank(peer), " still at " + text_of(theirs) + waits_of(world_rank(peer)));
  }
  std::vector<std::string> clauses;
  for (auto& [text, ranks] : late) {
    std::ranges::sort(ranks);
    const char* verb = text.starts_with(" still") ? ranks.size() == 1 ? " is" : " are" : "";
    clauses.push_back(describe_ranks(ranks) + verb + text);
  }
  return clauses.empty() ? "a rank does not answer" : join(clauses, "; ");
}

std::string SegmentGroup::waits_of(int rank) const {
  std::vector<std::string> waits;
  for (const auto& [offset, ranks, name] : places_->all()) {
    const auto* members = reinterpret_cast<const ShmRank*>(segment_->data() + offset + shm_ranks_offset);
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (members == ranks_ || found == ranks.end()) continue;
    const auto& other = members[found - ranks.begin()];
    if (other.waits > 0) waits.push_back(fmt::format("{} of {}", describe(other.latest()), name));
  }
  return waits.empty() ? "" : " and waits in " + join(waits, " and in ");
}

std::string SegmentGroup::who_is_gone(int look) const {
  constexpr int peers_each = 8;
  for (int i = 0; i < std::min(peers_each, size() - 1); ++i) {
    const int distance = (look * peers_each + i) % (size() - 1) + 1, peer = (rank_ + distance) % size();
    const int pid = ranks_[peer].pid;
    if (pid == 0 || pid == ::getpid() || process_begun(pid) == ranks_[peer].begun) continue;
    return fmt::format("rank {} (pid {}) is gone while rank {} waits in {}", world_rank(peer), pid, world_rank(rank_),
                       text_of(ranks_[rank_].latest()));
  }
  return "";
}

void SegmentGroup::look_around(const Word& word, uint32_t seen, double waited, int look) const {
  std::string why = who_is_gone(look);
  if (why.empty() && waited * 1000 >= static_cast<double>(timeout_.count()))
    why = fmt::format("rank {} waited {} in {}: {}", world_rank(rank_), format_duration(waited),
                      text_of(ranks_[rank_].latest()), who_is_late());
  if (why.empty() || word.load(std::memory_order_acquire) != seen) return;  // a peer may arrive and exit afterwards
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
    if (area_->generation.load(std::memory_order_acquire) != generation) return;
    relax();
  }
  wait_for_change(area_->generation, generation);
}

void SegmentGroup::wait_for_change(Word& word, uint32_t seen) const {
  double begun = steady_seconds();
  auto& waits = ranks_[rank_].waits;
  bool noted = false;
  for (int look = 0; word.load(std::memory_order_acquire) == seen;) {
    if (area_->failure.state != ShmFailure::none) throw_failure();
    futex_wait(word, seen, look_every_ms_);
    double waited = steady_seconds() - begun;
    if (waited <= 0.1) continue;
    if (!std::exchange(noted, true)) ++waits;
    look_around(word, seen, waited, look++);
  }
  if (noted) --waits;  // a rank that gives up remains noted, because others report what it waited for
}

void SegmentGroup::check_agreement() const {
  // By parity, not the latest: a peer may have passed this barrier and announced its next call.
  const auto parity = ranks_[rank_].latest().sequence % 2;
  const auto of = [&](int peer) { return ranks_[peer].operations[parity].load(); };
  const auto first = of(0);
  int peer = 1;
  while (peer < size() && of(peer) == first) ++peer;
  if (peer >= size()) return;
  std::vector<RankOperation> operations;
  for (peer = 0; peer < size(); ++peer) operations.push_back({world_rank(peer), of(peer)});
  set_failure(describe_divergence(operations));
  throw_failure();
}

// ---- transfers

std::byte* SegmentGroup::free_chunk(const Operation& message) {
  if (area_->failure.state != ShmFailure::none) throw_failure();
  ShmRing& ring = area_->ring;
  uint32_t filled = ring.filled.load(std::memory_order_relaxed);
  wait_for_change(ring.emptied, filled - shm_ring_chunks);
  ring.messages[filled % shm_ring_chunks] = message;
  return slots_ + filled % shm_ring_chunks * shm_chunk_bytes;
}

void SegmentGroup::pass_on() {
  area_->ring.filled.fetch_add(1, std::memory_order_release);
  futex_wake_all(area_->ring.filled);
}

const std::byte* SegmentGroup::filled_chunk(const Operation& message) {
  ShmRing& ring = area_->ring;
  uint32_t emptied = ring.emptied.load(std::memory_order_relaxed);
  wait_for_change(ring.filled, emptied);
  const Operation& sent = ring.messages[emptied % shm_ring_chunks];
  if (sent != message) {
    set_failure(describe_divergence({{world_rank(0), sent, name_}, {world_rank(1), message, name_}}));
    throw_failure();
  }
  return slots_ + emptied % shm_ring_chunks * shm_chunk_bytes;
}

void SegmentGroup::give_back() {
  area_->ring.emptied.fetch_add(1, std::memory_order_release);
  futex_wake_all(area_->ring.emptied);
}

// ---- areas

std::unique_ptr<SegmentGroup> SegmentAreas::next(const std::vector<int>& ranks, const std::string& name) {
  const size_t offset = used_, size = shm_area_bytes(static_cast<int>(ranks.size()));
  if (offset + size > segment_->bytes())
    throw usage_error(
        "process_group_backend \"shm\" has room for {} process groups of all ranks of a host, or for more smaller "
        "ones; the group \"{}\" does not fit any more; take \"gloo\"",
        shm_groups, name);
  used_ += size;
  auto where = std::find(ranks.begin(), ranks.end(), rank_);
  places_->add({.offset = offset, .world_ranks = ranks, .name = name});
  if (where == ranks.end()) return {};
  return std::make_unique<SegmentGroup>(segment_, offset, static_cast<int>(where - ranks.begin()), ranks, name,
                                        timeout_, places_);
}

}  // namespace runner
