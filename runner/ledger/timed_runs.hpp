// Earlier runs whose steps were timed, for predictions to learn from.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct TimedRun {
  nlohmann::json step;  ///< what was predicted of a step: {load, where}
  double seconds = 0;   ///< median of its steps
  double spread = 0;    ///< half the distance of their quartiles, over the median
  double lost = 0;      ///< part of the time in which other work had the CPUs
};

/// The newest `most` that have ended, of the newest few thousand runs; none where there is no ledger.
std::vector<TimedRun> timed_runs(const std::string& home, int most);

}  // namespace runner
