// Fits rates to the measurements of `runner doctor --calibrate`: non-negative least squares over the kinds of work
// (Lawson and Hanson 1974, by coordinate descent). Errors are relative, so that small steps count as much as large
// ones. Disturbed steps count less (Huber 1964, by reweighting).
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/selection/step_time.hpp"

namespace runner {

/// The measurements of one calibration, in which all ranks work at the same time, each with `threads` threads.
struct Calibration {
  int ranks = 1, threads = 1, cores = 1;
  double time = 0;  ///< Unix seconds
  /// The `calibration` events of run_calibration(), in their order.
  std::vector<nlohmann::json> points = {};
};

/// With fewer steps, the kinds of work cannot be separated.
constexpr size_t least_steps = work_kinds;

struct Fit {
  std::array<double, work_kinds> seconds = {};
  double median_error = 0, worst_error = 0;  ///< relative, over the steps it was fitted to
};
struct MeasuredStep {
  StepWork work = {};
  double seconds = 0;
  double elsewhere = 0;  ///< part of `seconds` that is not fitted: collectives alone
};
/// Throws std::logic_error without points. Kinds of work that no step has get the rate 0.
Fit fit_rates(const std::vector<MeasuredStep>& steps);
/// The measured steps of one model family and precision.
std::vector<MeasuredStep> steps_of(const Calibration& calibration, const std::string& family,
                                   const std::string& precision);

/// Rates for a model family and precision, from the calibration with the same threads and ranks. Without one, from the
/// next lower number of ranks, or else the next higher one, with a larger `error`. If there are more threads than
/// cores, all times are longer in proportion. nullopt if there are too few measurements.
std::optional<Rates> calibrated_rates(const std::vector<Calibration>& calibrations, const std::string& family,
                                      const std::string& precision, int ranks, int threads);

// Whether repeated measurements on a machine with other work can be used, and their result.
//
// Measurements are repeated in turns: each has one turn, then each has another. Other work only adds time, so the
// result is the minimum over the turns in which this process got all the CPU time that it wanted. It is settled when a
// second such turn is close to it. If another process computes all the time, there is no such turn. If the kernel does
// not count waiting, or if others take memory bandwidth but no CPU, only differences between the turns show it.

/// Some runs of the same work in a row.
struct Turn {
  double seconds = 0;  ///< of the fastest run
  double lost = 0;     ///< lost_share() of the turn
};

struct Figure {
  double seconds = 0;  ///< 0: none
  bool settled() const { return seconds > 0; }
};

Figure figure_of(const std::vector<Turn>& turns);

/// Why these measurements cannot be used: too few of them settled, or the machine became slower meanwhile. Empty: those
/// that settled can be used.
std::string disturbance(const std::vector<std::vector<Turn>>& measurements);

}  // namespace runner
