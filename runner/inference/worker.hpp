// The worker's side of `runner generate`, `chat`, `evaluate`, `predict` and `embed`: loads a model and does what the request says.
#pragma once

#include "runner/base/error.hpp"

namespace runner {

/// `request`: the number of a descriptor (request_in()). Texts go to stdout. `evaluate`, `predict` and `embed` also send events to the
/// supervisor (RUNNER_EVENT_FD): `result` with the measured values, and `failed`. Errors of the others go to stderr.
ExitCode run_inference_worker(int request);

}  // namespace runner
