// The control words of a step: what all ranks sum at its end, in one all_reduce whose size does not depend on their number.
#pragma once
#include <cstdint>

#include "strategies/collective/world.hpp"

namespace runner {

/// Votes are the lowest bits of a number.
constexpr int vote_bits = 8;

struct ControlSums {
  double loss = 0, squared_norm = 0;  ///< equal bits on all ranks; summed as in reduction.hpp
  uint32_t votes = 0;                 ///< bitwise OR
};

/// A collective call. The arguments are those of this rank. Throws Error(run_failed) on all ranks if ranks of a group have made different
/// calls before.
ControlSums sum_control_words(const World& world, double loss, double squared_norm, uint32_t votes);

}  // namespace runner
