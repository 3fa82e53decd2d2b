// Simulates ring collectives in memory, message by message. Tests compare claimed traffic with it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "strategies/collective/operation.hpp"

namespace runner::testing {

/// Ranks that send only to their right neighbour, and the bytes that each rank has sent. An element is one byte.
class Ring {
 public:
  using Bytes = std::vector<uint8_t>;

  Ring(int64_t payload, int ranks) : payload_(payload), ranks_(ranks), sent_(static_cast<size_t>(ranks), 0) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto& mine = buffers_.emplace_back(static_cast<size_t>(payload));
      for (size_t i = 0; i < mine.size(); ++i) mine[i] = value(rank, i);
    }
  }

  /// Afterwards, rank r has the sums of part r.
  void reduce_scatter() {
    for (int step = 0; step + 1 < ranks_; ++step)
      pass([&](int rank) { return rank - step - 1; }, [](uint8_t& into, uint8_t value) { into += value; });
  }
  /// Before, rank r has part r. Afterwards, every rank has all parts.
  void all_gather() {
    for (int step = 0; step + 1 < ranks_; ++step)
      pass([&](int rank) { return rank - step; }, [](uint8_t& into, uint8_t value) { into = value; });
  }
  /// Passes the buffer of rank 0 from neighbour to neighbour up to the last rank.
  void broadcast() {
    for (int rank = 0; rank + 1 < ranks_; ++rank) {
      buffers_[at(rank + 1)] = buffers_[at(rank)];
      sent_[at(rank)] += payload_;
    }
  }

  /// Passes sums from neighbour to neighbour, from rank 1 to rank 0.
  void reduce() {
    for (int rank = 1; rank < ranks_; ++rank) {
      for (size_t i = 0; i < buffers_[at(rank)].size(); ++i) buffers_[at(rank + 1)][i] += buffers_[at(rank)][i];
      sent_[at(rank)] += payload_;
    }
  }

  /// Sends part p of each rank's buffer directly to rank p. Afterwards, part p of rank r is what was part r of rank p. All parts must
  /// have the same size.
  void all_to_all() {
    const auto before = buffers_;
    const auto count = static_cast<size_t>(begin(1));
    if (payload_ % ranks_ != 0) throw std::logic_error("the parts differ in size");
    for (int rank = 0; rank < ranks_; ++rank)
      for (int to = 0; to < ranks_; ++to) {
        std::copy_n(before[at(rank)].begin() + begin(to), count, buffers_[at(to)].begin() + begin(rank));
        if (to != rank) sent_[at(rank)] += begin(1);
      }
  }

  int64_t sent_together() const {
    int64_t sum = 0;
    for (int64_t bytes : sent_) sum += bytes;
    return sum;
  }
  /// Throws std::logic_error if an element of `rank` in [begin, end) differs from `expected(i)`.
  template <typename Expected>
  void check(int rank, int64_t begin, int64_t end, Expected&& expected) const {
    for (int64_t i = begin; i < end; ++i)
      if (buffers_[at(rank)][static_cast<size_t>(i)] != expected(static_cast<size_t>(i)))
        throw std::logic_error("the simulated ring computes something else");
  }
  /// First element of part `part` of the payload. The sizes of parts differ by at most one element.
  int64_t begin(int part) const { return payload_ * part / ranks_; }

  static uint8_t value(int rank, size_t i) { return static_cast<uint8_t>(31 * static_cast<size_t>(rank + 1) + 7 * i); }
  uint8_t sum(size_t i) const {
    uint8_t total = 0;
    for (int rank = 0; rank < ranks_; ++rank) total = static_cast<uint8_t>(total + value(rank, i));
    return total;
  }
  /// The initial value of element i on the rank that owns its part.
  uint8_t of_owner(size_t i) const {
    int owner = 0;
    while (begin(owner + 1) <= static_cast<int64_t>(i)) ++owner;
    return value(owner, i);
  }

 private:
  size_t at(int rank) const { return static_cast<size_t>((rank % ranks_ + ranks_) % ranks_); }

  /// Every rank sends one part to its right neighbour. All ranks send at the same time.
  template <typename Part, typename Take>
  void pass(Part&& part_of, Take&& take) {
    auto before = buffers_;
    for (int rank = 0; rank < ranks_; ++rank) {
      auto part = static_cast<int>(at(part_of(rank)));
      for (int64_t i = begin(part); i < begin(part + 1); ++i)
        take(buffers_[at(rank + 1)][static_cast<size_t>(i)], before[at(rank)][static_cast<size_t>(i)]);
      sent_[at(rank)] += begin(part + 1) - begin(part);
    }
  }

  int64_t payload_;
  int ranks_;
  std::vector<Bytes> buffers_;
  std::vector<int64_t> sent_;
};

/// Bytes that all ranks together send in one collective on a ring. Throws std::logic_error if the result of the
/// collective is wrong.
inline int64_t sent_on_a_ring(Collective kind, int64_t payload, int ranks) {
  static std::mutex mutex;  // ranks are threads
  static std::map<std::tuple<Collective, int64_t, int>, int64_t> known;
  std::lock_guard lock(mutex);
  auto [found, fresh] = known.try_emplace({kind, payload, ranks}, 0);
  if (!fresh) return found->second;
  Ring ring(payload, ranks);
  auto all_are = [&](auto&& expected) {
    for (int rank = 0; rank < ranks; ++rank) ring.check(rank, 0, payload, expected);
  };
  switch (kind) {
    case Collective::all_gather:
      ring.all_gather();
      all_are([&](size_t i) { return ring.of_owner(i); });
      break;
    case Collective::reduce_scatter:
      ring.reduce_scatter();
      for (int rank = 0; rank < ranks; ++rank)
        ring.check(rank, ring.begin(rank), ring.begin(rank + 1), [&](size_t i) { return ring.sum(i); });
      break;
    case Collective::all_reduce:
      ring.reduce_scatter();
      ring.all_gather();
      all_are([&](size_t i) { return ring.sum(i); });
      break;
    case Collective::all_to_all:
      ring.all_to_all();
      for (int rank = 0; rank < ranks; ++rank)
        for (int part = 0; part < ranks; ++part)
          ring.check(rank, ring.begin(part), ring.begin(part + 1), [&](size_t i) {
            return Ring::value(part, i - static_cast<size_t>(ring.begin(part)) + static_cast<size_t>(ring.begin(rank)));
          });
      break;
    case Collective::reduce:
      ring.reduce();
      ring.check(0, 0, payload, [&](size_t i) { return ring.sum(i); });
      break;
    case Collective::broadcast:
    case Collective::transfer:  // between two ranks
      ring.broadcast();
      all_are([](size_t i) { return Ring::value(0, i); });
      break;
    default:
      throw std::logic_error("no ring for this collective");
  }
  return found->second = ring.sent_together();
}

}  // namespace runner::testing
