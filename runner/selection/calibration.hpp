// Rates fitted to what `runner doctor --calibrate` measured: non-negative least squares over the kinds of work, in
// relative error, so that small steps count as much as large ones (Lawson and Hanson 1974, by coordinate descent), and
// steps that something else disturbed count less (Huber 1964, by reweighting).
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/selection/step_time.hpp"

namespace runner {

/// The measurements of one calibration: so many ranks of so many threads at work at once.
struct Calibration {
  int ranks = 1, threads = 1, cores = 1;
  double time = 0;  ///< Unix seconds
  /// The `calibration` events of run_calibration(), as they came.
  std::vector<nlohmann::json> points;
};

/// Fewer steps than this tell kinds of work apart too badly.
constexpr size_t least_steps = work_kinds;

struct Fit {
  std::array<double, work_kinds> seconds = {};
  double median_error = 0, worst_error = 0;  ///< relative, over the steps it was fitted to
};
struct MeasuredStep {
  StepWork work = {};
  double seconds = 0;
  double elsewhere = 0;  ///< of these seconds, those that no kind of work is to explain: collectives by themselves
};
/// Throws std::logic_error without points. Kinds of work that no point has cost nothing.
Fit fit_rates(const std::vector<MeasuredStep>& steps);
/// Steps of one family and precision.
std::vector<MeasuredStep> steps_of(const Calibration& calibration, const std::string& family,
                                   const std::string& precision);

/// For ranks of a family and precision: from the calibration with the same threads and ranks, or else the most ranks
/// below, or the fewest beyond, which is less sure. More threads than cores share them. nullopt where nothing of the
/// kind was measured.
std::optional<Rates> calibrated_rates(const std::vector<Calibration>& calibrations, const std::string& family,
                                      const std::string& precision, int ranks, int threads);

}  // namespace runner
