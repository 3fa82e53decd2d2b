// The size of the buckets of gradients that are reduced together during backward, as in DistributedDataParallel.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

/// The option for their size.
const Option& bucket_cap_option();

struct BucketBytes {
  int64_t first, others;
};
BucketBytes bucket_bytes(const Job& job);

}  // namespace runner
