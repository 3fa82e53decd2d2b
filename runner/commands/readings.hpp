// Tells readings of the machine (cpu/percent) from metrics. `metrics` and `plot` take names of both.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// Whether a run has a reading of this name, and no metric.
inline bool is_reading(const Ledger& ledger, const std::string& run, const std::string& name) {
  return std::ranges::count(ledger.system_names(run), name) > 0 &&
         std::ranges::count(ledger.metric_names(run), name) == 0;
}

/// Whether the names are readings of the runs, which are over seconds, instead of metrics, which are over steps. Throws Error(usage) if
/// some are readings and some are not. False if there are no names.
inline bool are_readings(const Ledger& ledger, const std::vector<std::string>& runs,
                         const std::vector<std::string>& names) {
  const auto read = [&](const std::string& name) {
    return std::ranges::any_of(runs, [&](const auto& run) { return is_reading(ledger, run, name); });
  };
  const auto reading = std::ranges::find_if(names, read), metric = std::ranges::find_if_not(names, read);
  if (reading != names.end() && metric != names.end())
    throw usage_error(
        "{} is a reading of the machine over seconds, and {} a metric over steps: ask for them one after the other",
        *reading, *metric);
  return reading != names.end();
}

}  // namespace runner
