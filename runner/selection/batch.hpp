// Batch arithmetic: global_batch_size = micro_batch_size x data ranks x accumulation.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// The origin of a value that the planner decided. `why`: the reason.
Origin decided(const std::string& why);

/// The ranks among which a step is divided.
struct BatchRanks {
  int data = 1;      ///< that read different sequences
  int pipeline = 1;  ///< that have different blocks. They wait less for each other with more micro-batches.
};

/// Sets defaults for micro_batch_size and, without global_batch_size, accumulate_grad_batches. "auto" gets the default too; the
/// choice of a strategy changes it later. Reports sizes that do not divide, with the values that work.
void resolve_batch(Recipe& recipe, const BatchRanks& ranks, std::vector<Diagnostic>& diagnostics);

/// The least multiple of data_ranks x micro_batch_size that is not below the recipe's global_batch_size; if it has more than 64
/// bits, the recipe's value. The recipe must have a global_batch_size.
int64_t shared_batch(const Recipe& recipe, int data_ranks);

/// Whether the recipe's global_batch_size can be divided among the data ranks, in micro-batches of its micro_batch_size.
bool can_divide_batch(const Recipe& recipe, int data_ranks);

/// How many micro-batches for each rank of a pipeline the defaults leave, if the batch has as many sequences. Source: Huang et al.
/// 2018 (GPipe, arXiv 1811.06965), section 2.3: the time in which ranks wait is negligible from four times as many on.
inline constexpr int64_t micro_batches_per_stage = 4;

/// The most tokens of a rank's micro-batch. A worker predicts its memory, and goes through all chunks of the loss, which takes seconds.
inline constexpr int64_t micro_batch_tokens_most = int64_t{1} << 22;

/// A way to cut the step into micro-batches.
struct BatchChoice {
  int64_t micro_batch_size = 1, accumulation = 1;
};

/// The choices that the recipe leaves open, the largest micro-batch first. With micro_batch_size = N: one choice. With
/// global_batch_size: divisors of a rank's sequences. Otherwise powers of two; accumulation keeps the default number of sequences
/// in a step, unless the recipe sets it or micro_batch_size is "auto". Micro-batches are at most 8, or 1024 for "auto".
/// In a pipeline, only choices with micro_batches_per_stage for each rank, if there are any; otherwise only the smallest micro-batch.
/// Without global_batch_size, "auto" in a pipeline accumulates that many, unless the recipe sets accumulate_grad_batches.
/// The batch must be divisible (can_divide_batch()).
std::vector<BatchChoice> batch_choices(const Recipe& recipe, const BatchRanks& ranks);

}  // namespace runner
