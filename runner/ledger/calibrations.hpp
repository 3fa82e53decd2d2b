// Measurements of machines and of earlier runs, stored in the ledger.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct CalibrationRow {
  double time = 0;      ///< Unix seconds
  std::string machine;  ///< host name, CPU and cores; the measurements are valid for this machine only
  int ranks = 1, threads = 1;
  std::string build_id;
  nlohmann::json points;       ///< array
  std::string disturbed = {};  ///< why the points cannot be used; empty if they can
};

/// Commits the row. Throws Error(environment).
void keep_calibration(const std::string& home, const CalibrationRow& row);
/// The newest undisturbed calibration for each number of ranks and threads, then the newest disturbed one for each number
/// that has no undisturbed one. Empty if there is no ledger.
std::vector<CalibrationRow> calibrations(const std::string& home, const std::string& machine);

// Earlier runs with measured step times, which improve predictions.

struct TimedRun {
  nlohmann::json step;  ///< the prediction for a step: {load, where}
  double seconds = 0;   ///< median of the measured step times
  double spread = 0;    ///< half the interquartile range of the step times, divided by the median
  double lost = 0;      ///< share of the time in which other work used the CPUs, 0 to 1
};

/// The newest `most` runs with measured steps, among the newest few thousand runs. Empty if there is no ledger.
std::vector<TimedRun> timed_runs(const std::string& home, int most);

}  // namespace runner
