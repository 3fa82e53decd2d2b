// Batch arithmetic: global_batch_size = micro_batch_size x data ranks x accumulation.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// The origin of a value that the planner decided. `why`: the reason.
Origin decided(const std::string& why);

/// Sets defaults for micro_batch_size and, without global_batch_size, accumulate_grad_batches. "auto" gets the default too; the
/// choice of a strategy changes it later. Reports sizes that do not divide, with the values that work.
void resolve_batch(Recipe& recipe, int data_ranks, std::vector<Diagnostic>& diagnostics);

/// The least multiple of data_ranks x micro_batch_size that is not below the recipe's global_batch_size; if it has more than 64
/// bits, the recipe's value. The recipe must have a global_batch_size.
int64_t shared_batch(const Recipe& recipe, int data_ranks);

/// Whether the recipe's global_batch_size can be divided among the data ranks, in micro-batches of its micro_batch_size.
bool can_divide_batch(const Recipe& recipe, int data_ranks);

/// A way to cut the step into micro-batches.
struct BatchChoice {
  int64_t micro_batch_size = 1, accumulation = 1;
};

/// The choices that the recipe leaves open, the largest micro-batch first. With micro_batch_size = N: one choice. With
/// global_batch_size: divisors of a rank's sequences. Otherwise powers of two; accumulation keeps the default number of sequences
/// in a step, unless the recipe sets it or micro_batch_size is "auto". Micro-batches are at most 8, or 1024 for "auto".
/// The batch must be divisible (can_divide_batch()).
std::vector<BatchChoice> batch_choices(const Recipe& recipe, int data_ranks);

}  // namespace runner
