// `runner doctor --calibrate`: measures this machine's speed for predictions of time and stores the results in the ledger.
#pragma once
#include "runner/base/error.hpp"
#include "runner/devices/devices.hpp"

namespace runner {

/// Takes about 50 s, and up to twice that if other work disturbs it. Prints the measurements and the errors of the fitted
/// rates. A calibration that stays disturbed is stored without measurements, and the result is then `environment`.
ExitCode calibrate(const Facts& facts, bool json);

}  // namespace runner
