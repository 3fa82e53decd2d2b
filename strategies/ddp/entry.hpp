// `ddp`: a replica on every rank, gradients all-reduced in buckets while backward goes on.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

Entry ddp_entry();

/// The options as the strategy and its claims both read them.
struct DdpPlan {
  /// Parameter slots of each bucket, in the order in which buckets are reduced: from the last parameter to the first,
  /// as gradients arrive, each bucket closed by the parameter that reaches its size (c10d's
  /// compute_bucket_assignment_by_size).
  std::vector<std::vector<size_t>> buckets;
  int64_t first_bucket_bytes = 0, bucket_bytes = 0;  ///< sizes at which a bucket is closed
  DType wire = DType::float32;                       ///< dtype that gradients are summed in
  bool find_unused_parameters = false, gradient_as_bucket_view = true, static_graph = false;
};
DdpPlan ddp_plan(const Job& job);

}  // namespace runner
