// Earlier runs with measured step times, which improve predictions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct TimedRun {
  nlohmann::json step;  ///< the prediction for a step: {load, where}
  double seconds = 0;   ///< median of the measured step times
  double spread = 0;    ///< half the interquartile range of the step times, divided by the median
  double lost = 0;      ///< share of the time in which other work used the CPUs, 0 to 1
};

/// The newest `most` runs with measured steps, among the newest few thousand runs. Empty if there is no ledger.
std::vector<TimedRun> timed_runs(const std::string& home, int most);

}  // namespace runner
