// The order of samples in an epoch: a keyed Feistel network over the next power of four, with cycle walking.
#include "runner/data/order.hpp"

#include <bit>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"

namespace runner {

namespace {

constexpr int rounds = 6;

}  // namespace

SampleOrder::SampleOrder(int64_t size, bool shuffle, int64_t seed, int64_t epoch)
    : size_(size),
      shuffle_(shuffle),
      key_(mix64(mix64(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(epoch))),
      half_bits_(std::max(
          1, (static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(size, 1) - 1))) + 1) / 2)) {
  RUNNER_CHECK(size >= 0);
}

int64_t SampleOrder::operator[](int64_t position) const {
  RUNNER_CHECK(position >= 0 && position < size_);
  if (!shuffle_) return position;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  // Cycle walking: the network permutes [0, 4^half_bits), which is less than four times the size (or four). Applied
  // repeatedly until the result is below the size, it permutes [0, size).
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (int round = 0; round < rounds; ++round) {
      uint64_t next = left ^ (mix64(key_ ^ mix64(right << 3 | static_cast<uint64_t>(round))) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace runner
