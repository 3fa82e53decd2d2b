// Tells readings of the machine (cpu/percent) from metrics. `metrics` and `plot` take names of both.
#pragma once
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"

namespace runner {

/// Whether a run has a reading of this name, and no metric.
bool is_reading(const Ledger& ledger, const std::string& run, const std::string& name);

/// Whether the names are readings of the runs, which are over seconds, instead of metrics, which are over steps. Throws Error(usage) if
/// some are readings and some are not. False if there are no names.
bool are_readings(const Ledger& ledger, const std::vector<std::string>& runs, const std::vector<std::string>& names);

}  // namespace runner
