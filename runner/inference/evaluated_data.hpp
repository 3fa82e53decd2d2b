// The data that `runner evaluate` measures the loss on.
#pragma once
#include "runner/checkpoint/stored_model.hpp"
#include "runner/inference/request.hpp"

namespace runner {

/// [data] of the model; with --data, the file that the user names is its validation data, read as settings_for_file() says. Throws
/// Error(usage) if there are no validation data.
Recipe::Data evaluated_data(const InferenceRequest& request, const StoredModel& stored);

}  // namespace runner
