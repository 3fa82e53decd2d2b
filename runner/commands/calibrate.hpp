// `runner doctor --calibrate`: measures this machine for predictions of time, and keeps that in the ledger.
#pragma once
#include "runner/base/error.hpp"
#include "runner/devices/devices.hpp"

namespace runner {

/// About 50 s in all, and as long again where other work disturbs it. Prints what was measured and how well the fitted
/// rates explain it. What stays disturbed is kept without figures: the result is then `environment`.
ExitCode calibrate(const Facts& facts, bool json);

}  // namespace runner
