// Random numbers that depend only on (seed, stream), so that a resumed sweep draws the same numbers as an uninterrupted
// one.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "runner/base/hash.hpp"

namespace runner::sweep {

class RandomBits {
 public:
  /// `stream` identifies a trial, a dimension or a generation. Streams of one seed are independent.
  RandomBits(uint64_t seed, uint64_t stream) : state_(mix64(mix64(seed) ^ stream)) {}

  uint64_t next() { return mix64(state_++); }
  /// In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// In [0, count).
  size_t below(size_t count) { return static_cast<size_t>(uniform() * static_cast<double>(count)); }
  /// Standard normal (Box and Muller).
  double normal() {
    double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace runner::sweep
