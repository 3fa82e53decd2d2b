#include "runner/selection/calibration.hpp"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace runner {

namespace {

double part_at(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

/// Steps of one family and precision.
std::vector<std::pair<StepWork, double>> steps_of(const Calibration& calibration, const std::string& family,
                                                  const std::string& precision) {
  std::vector<std::pair<StepWork, double>> steps;
  for (const auto& point : calibration.points)
    if (point.at("what") == "step" && point.at("family") == family && point.at("precision") == precision &&
        point.at("work").size() == work_kinds)  // another build may have told others apart
      steps.emplace_back(point.at("work").get<StepWork>(), point.at("seconds").get<double>());
  return steps;
}

/// The calibration that ranks of so many threads are most like: the most ranks up to theirs, or else the fewest beyond
/// (which have less of caches and memory to themselves).
const Calibration* nearest_calibration(const std::vector<Calibration>& calibrations, int ranks, int threads) {
  const Calibration *below = nullptr, *beyond = nullptr;
  for (const auto& one : calibrations) {
    if (one.threads != threads) continue;
    if (one.ranks <= ranks && (!below || one.ranks > below->ranks)) below = &one;
    if (one.ranks > ranks && (!beyond || one.ranks < beyond->ranks)) beyond = &one;
  }
  return below ? below : beyond;
}

void add_measured(Rates& rates, const Calibration& calibration) {
  for (const auto& point : calibration.points) {
    const auto& what = point.at("what");
    if (what == "collective")
      rates.curves[{point.at("name"), point.at("ranks")}].points.emplace_back(point.at("bytes"), point.at("seconds"));
    else if (what == "copy")
      rates.seconds[static_cast<size_t>(Work::copied_bytes)] = 1 / point.at("bytes_per_s").get<double>();
    else if (what == "product")
      rates.peak_flops = std::max(rates.peak_flops, point.at("flops_per_s").get<double>());
  }
  rates.peak_name = "this machine's best matrix product";
}

}  // namespace

Fit fit_rates(const std::vector<std::pair<StepWork, double>>& steps) {
  if (steps.empty()) throw std::logic_error("nothing to fit rates to");
  // Columns are scaled to a mean square of one, and each row to a time of one.
  std::array<double, work_kinds> scale = {};
  for (const auto& [work, seconds] : steps)
    for (size_t k = 0; k < work_kinds; ++k) scale[k] += work[k] / seconds * work[k] / seconds;
  std::array<std::array<double, work_kinds>, work_kinds> gram = {};
  std::array<double, work_kinds> target = {}, solution = {};
  for (auto& value : scale) value = value > 0 ? 1 / std::sqrt(value) : 0;
  for (const auto& [work, seconds] : steps)
    for (size_t i = 0; i < work_kinds; ++i) {
      target[i] += work[i] / seconds * scale[i];
      for (size_t j = 0; j < work_kinds; ++j)
        gram[i][j] += work[i] / seconds * scale[i] * (work[j] / seconds * scale[j]);
    }
  constexpr int sweeps = 20'000;
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (size_t k = 0; k < work_kinds; ++k) {
      if (scale[k] == 0) continue;
      double gradient = target[k];
      for (size_t j = 0; j < work_kinds; ++j) gradient -= gram[k][j] * solution[j];
      solution[k] = std::max(0.0, solution[k] + gradient / gram[k][k]);
    }
  Fit fit;
  for (size_t k = 0; k < work_kinds; ++k) fit.seconds[k] = solution[k] * scale[k];
  std::vector<double> errors;
  for (const auto& [work, seconds] : steps) {
    double predicted = 0;
    for (size_t k = 0; k < work_kinds; ++k) predicted += work[k] * fit.seconds[k];
    errors.push_back(std::abs(predicted / seconds - 1));
  }
  fit.median_error = part_at(errors, 0.5);
  fit.worst_error = part_at(errors, 1);
  return fit;
}

std::optional<Rates> calibrated_rates(const std::vector<Calibration>& calibrations, const std::string& family,
                                      const std::string& precision, int ranks, int threads) {
  const Calibration* calibration = nearest_calibration(calibrations, ranks, threads);
  if (!calibration) return std::nullopt;
  auto steps = steps_of(*calibration, family, precision);
  if (steps.size() < least_steps) return std::nullopt;
  Fit fit = fit_rates(steps);
  Rates rates;
  rates.seconds = fit.seconds;
  add_measured(rates, *calibration);
  double crowding = std::max(1.0, static_cast<double>(ranks) * threads / std::max(1, calibration->cores));
  for (auto& seconds : rates.seconds) seconds *= crowding;
  rates.error = std::max(0.05, fit.worst_error / 2);
  rates.source =
      fmt::format("calibration of this machine, {:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(calibration->time)));
  return rates;
}

}  // namespace runner
