// Options of DistributedDataParallel: the size of the buckets of gradients that are reduced together during backward, and those without
// effect.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

/// The option for their size.
const Option& bucket_cap_option();

/// Options of DistributedDataParallel that change nothing here.
const std::vector<Option>& options_without_effect();

struct BucketBytes {
  int64_t first, others;
};
BucketBytes bucket_bytes(const Job& job);

}  // namespace runner
