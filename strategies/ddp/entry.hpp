// `ddp`: every rank has a replica of the model, and gradients are all-reduced in buckets during backward.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

Entry ddp_entry();

/// The options in resolved form. The strategy and the predictions of memory and traffic use the same plan.
struct DdpPlan {
  std::vector<std::vector<size_t>> buckets;          ///< parameter slots of each, in the order of reduction
  int64_t first_bucket_bytes = 0, bucket_bytes = 0;  ///< size limits of the first bucket and of the others
  DType wire = DType::float32;                       ///< dtype in which gradients are summed
  bool find_unused_parameters = false, gradient_as_bucket_view = true, static_graph = false;
};
DdpPlan ddp_plan(const Job& job);

}  // namespace runner
