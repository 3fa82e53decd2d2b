// Tests of many combinations: scripts/test runs a part of them, `scripts/nightly combinations` runs all.
#pragma once

#include <cstdlib>

namespace runner::testing {

inline bool all_combinations() { return std::getenv("RUNNER_ALL_COMBINATIONS") != nullptr; }

/// True for one of every `count` calls, or for all calls in the nightly run. A static object counts over the
/// runs of a test with GENERATE. With several loops around it, every value of each is chosen if
/// `count` has no divisor in common with the loops' lengths, and a value has at least `count` combinations.
class EveryNth {
 public:
  explicit EveryNth(int count) : count_(all_combinations() ? 1 : count) {}
  bool operator()() { return calls_++ % count_ == 0; }

 private:
  int count_, calls_ = 0;
};

}  // namespace runner::testing
