// Measurements of machines, kept beside the runs they predict.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct CalibrationRow {
  double time = 0;      ///< Unix seconds
  std::string machine;  ///< host name, CPU and cores: what measurements hold for
  int ranks = 1, threads = 1;
  std::string build_id;
  nlohmann::json points;       ///< array
  std::string disturbed = {};  ///< why there are no points to use; empty: there are
};

/// Commits the row. Throws Error(environment).
void keep_calibration(const std::string& home, const CalibrationRow& row);
/// The newest undisturbed one of each number of ranks and threads, and after them the newest disturbed one of each that
/// has no other; none where there is no ledger.
std::vector<CalibrationRow> calibrations(const std::string& home, const std::string& machine);

}  // namespace runner
