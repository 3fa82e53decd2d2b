// Batch arithmetic: global_batch_size = micro_batch_size x data ranks x accumulation.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// The origin of a value that planning decided, and why.
Origin decided(const std::string& why);

/// Fills in micro_batch_size and, where it follows, global_batch_size: the default where it is "auto", for selection to
/// change. What does not divide is reported with the values that work.
void resolve_batch(Recipe& recipe, int data_ranks, std::vector<Diagnostic>& diagnostics);

/// The least global batch, from the recipe's own on, that the ranks can share in its micro-batches; the recipe's own
/// where no number of 64 bits is. The recipe has one.
int64_t shared_batch(const Recipe& recipe, int data_ranks);

/// A way to cut the step into micro-batches.
struct BatchChoice {
  int64_t micro_batch_size = 1, accumulation = 1;
};

/// What the recipe leaves open, the largest micro-batch first: one choice where it says micro_batch_size = N; divisors
/// of a rank's sequences where it says global_batch_size; else powers of two with so much accumulation that the
/// default's sequences a step stay. Of what it does not say, up to the default; of "auto", up to anything.
/// resolve_batch() has found nothing wrong.
std::vector<BatchChoice> batch_choices(const Recipe& recipe, int data_ranks);

}  // namespace runner
