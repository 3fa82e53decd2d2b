// Buckets of gradients that are reduced together during backward. c10d's Reducer makes the same ones
// (compute_bucket_assignment_by_size).
#pragma once
#include <functional>
#include <vector>

#include "strategies/contract/entry.hpp"

namespace runner {

/// The option for their size.
OptionSpec bucket_cap_option();

struct BucketBytes {
  int64_t first, others;
};
BucketBytes bucket_bytes(const Job& job);

struct GradientBucket {
  std::vector<size_t> slots;  ///< parameters from the last to the first, as gradients arrive
  bool sharded = false;       ///< each rank keeps only the optimizer state of its shard
};
/// Buckets in the order in which they fill up. The parameter that reaches the size limit is the last of its bucket.
/// Parameters that `shard` selects and others are in different buckets.
std::vector<GradientBucket> gradient_buckets(const Job& job,
                                             const std::function<bool(const ParameterSpec&)>& shard = {});

}  // namespace runner
