// Batches of samples of a data set, in its order, each sample as validation sees it, and the data that `runner evaluate` measures on.
#pragma once
#include <functional>

#include "runner/checkpoint/stored_model.hpp"
#include "runner/data/data.hpp"
#include "runner/inference/request.hpp"
#include "strategies/engine/host_batch.hpp"

namespace runner {

/// Calls body(batch, its first sample) for batches of at most `batch_size` of the first `wanted` samples, and after
/// each `progress` with the number of samples that are done.
void for_each_batch(const Dataset& data, int64_t wanted, int64_t batch_size,
                    const std::function<void(const HostBatch& batch, int64_t first)>& body,
                    const std::function<void(int64_t done)>& progress);

/// [data] of the model; with --data, the file that the user names is its validation data, read as settings_for_file() says. Throws
/// Error(usage) if there are no validation data.
Recipe::Data evaluated_data(const InferenceRequest& request, const StoredModel& stored);

}  // namespace runner
