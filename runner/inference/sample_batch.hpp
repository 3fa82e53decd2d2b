// Batches of samples of a data set, in its order, each sample as validation sees it.
#pragma once
#include <functional>

#include "runner/data/data.hpp"
#include "strategies/engine/host_batch.hpp"

namespace runner {

/// Calls body(batch, its first sample) for batches of at most `batch_size` of the first `wanted` samples, and after each `progress` with the
/// number of samples that are done.
void for_each_batch(const Dataset& data, int64_t wanted, int64_t batch_size,
                    const std::function<void(const HostBatch& batch, int64_t first)>& body,
                    const std::function<void(int64_t done)>& progress);

}  // namespace runner
