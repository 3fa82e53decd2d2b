// The worker's side of `runner generate`, `chat`, `evaluate` and `predict`: loads a model and does what the request says.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

/// `request`: an InferenceRequest as JSON. Texts go to stdout. `evaluate` and `predict` also send events to the supervisor
/// (RUNNER_EVENT_FD): `result` with the measured values, and `failed`. Errors of the others go to stderr.
ExitCode run_inference_worker(const std::string& request);

}  // namespace runner
