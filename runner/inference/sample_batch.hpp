// Batches of samples of a data set, in its order, each sample as validation sees it.
#pragma once
#include "runner/data/data.hpp"
#include "strategies/engine/host_batch.hpp"

namespace runner {

/// The samples [first, end).
HostBatch sample_batch(const Dataset& data, int64_t first, int64_t end);

}  // namespace runner
