#include "runner/selection/calibration.hpp"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "runner/base/quantile.hpp"

namespace runner {

namespace {

/// The calibration with these threads, and with the most ranks up to `ranks`; if there is none, with the fewest ranks
/// above (there, each rank has a smaller share of caches and memory).
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
    else if (what == "product")
      rates.peak_flops = std::max(rates.peak_flops, point.at("flops_per_s").get<double>());
  }
  rates.peak_name = "this machine's best matrix product";
}

/// Non-negative rates with the least weighted squares of relative errors. The search starts at `rates`.
std::array<double, work_kinds> least_squares(const std::vector<MeasuredStep>& steps, const std::vector<double>& weights,
                                             const std::array<double, work_kinds>& rates) {
  // Columns are scaled to a mean square of one, and each row to a time of one.
  std::array<double, work_kinds> scale = {};
  for (const auto& step : steps)
    for (size_t k = 0; k < work_kinds; ++k) scale[k] += step.work[k] / step.seconds * step.work[k] / step.seconds;
  std::array<std::array<double, work_kinds>, work_kinds> gram = {};
  std::array<double, work_kinds> target = {}, solution = {};
  for (size_t k = 0; k < work_kinds; ++k) {
    if (scale[k] == 0) continue;
    scale[k] = 1 / std::sqrt(scale[k]);
    solution[k] = rates[k] / scale[k];
  }
  for (size_t row = 0; row < steps.size(); ++row) {
    const auto& [work, seconds, elsewhere] = steps[row];
    for (size_t i = 0; i < work_kinds; ++i) {
      double scaled = weights[row] * work[i] / seconds * scale[i];
      target[i] += scaled * (1 - elsewhere / seconds);
      for (size_t j = 0; j < work_kinds; ++j) gram[i][j] += scaled * (work[j] / seconds * scale[j]);
    }
  }
  constexpr int sweeps = 2'000;
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (size_t k = 0; k < work_kinds; ++k) {
      if (gram[k][k] == 0) continue;
      double gradient = target[k];
      for (size_t j = 0; j < work_kinds; ++j) gradient -= gram[k][j] * solution[j];
      solution[k] = std::max(0.0, solution[k] + gradient / gram[k][k]);
    }
  for (size_t k = 0; k < work_kinds; ++k) solution[k] *= scale[k];
  return solution;
}

std::vector<double> relative_errors(const std::vector<MeasuredStep>& steps, const Fit& fit) {
  std::vector<double> errors;
  for (const auto& [work, seconds, elsewhere] : steps) {
    double predicted = elsewhere;
    for (size_t k = 0; k < work_kinds; ++k) predicted += work[k] * fit.seconds[k];
    errors.push_back(std::abs(predicted / seconds - 1));
  }
  return errors;
}

constexpr double lost_most = 0.03;     // of a turn that counts
constexpr double agreement = 0.05;     // between the two fastest turns
constexpr double settled_least = 0.9;  // of all measurements
constexpr double slowing_most = 0.15;  // from each measurement's fastest turn to its last

std::vector<double> undisturbed(const std::vector<Turn>& turns) {
  std::vector<double> seconds;
  for (const auto& turn : turns)
    if (turn.lost <= lost_most) seconds.push_back(turn.seconds);
  return seconds;
}

}  // namespace

Fit fit_rates(const std::vector<MeasuredStep>& steps) {
  if (steps.empty()) throw std::logic_error("nothing to fit rates to");
  constexpr double trusted = 0.02;  // smaller errors are attributed to the model, greater ones to disturbances
  constexpr int rounds = 8;
  std::vector<double> weights(steps.size(), 1), errors;
  Fit fit;
  for (int round = 0; round < rounds; ++round) {
    fit.seconds = least_squares(steps, weights, fit.seconds);
    errors = relative_errors(steps, fit);
    for (size_t i = 0; i < errors.size(); ++i) weights[i] = trusted / std::max(trusted, errors[i]);
  }
  fit.median_error = quantile(errors, 0.5);
  fit.worst_error = quantile(errors, 1);
  return fit;
}

std::vector<MeasuredStep> steps_of(const Calibration& calibration, const std::string& family,
                                   const std::string& precision) {
  Rates measured;
  add_measured(measured, calibration);
  std::vector<MeasuredStep> steps;
  for (const auto& point : calibration.points) {
    if (point.at("what") != "step" || point.at("family") != family || point.at("precision") != precision) continue;
    if (point.at("work").size() != work_kinds) continue;  // another build may have other kinds of work
    std::vector<Traffic> traffic;
    for (const auto& part : point.value("traffic", nlohmann::json::array()))
      traffic.push_back({part.at("collective"), part.at("calls"), part.at("bytes"), 0, calibration.ranks});
    if (auto elsewhere = communication_seconds(traffic, calibration.ranks, measured))
      steps.push_back({point.at("work").get<StepWork>(), point.at("seconds"), *elsewhere});
  }
  return steps;
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
  for (auto& seconds : rates.seconds) seconds *= crowding(ranks, threads, calibration->cores);
  rates.error = std::max(ranks == calibration->ranks ? 0.05 : 0.2, fit.median_error);
  if (!precision.starts_with("32")) rates.peak_flops = 0;  // products were measured in fp32
  rates.source =
      fmt::format("calibration of this machine, {:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(calibration->time)));
  return rates;
}

Figure figure_of(const std::vector<Turn>& turns) {
  auto seconds = undisturbed(turns);
  if (seconds.size() < 2) return {};
  std::sort(seconds.begin(), seconds.end());
  return seconds[1] <= (1 + agreement) * seconds[0] ? Figure{seconds[0]} : Figure{};
}

std::string disturbance(const std::vector<std::vector<Turn>>& measurements) {
  std::vector<double> lost, slowing;
  size_t settled = 0;
  for (const auto& turns : measurements) {
    for (const auto& turn : turns) lost.push_back(turn.lost);
    const Figure figure = figure_of(turns);
    if (!figure.settled()) continue;
    ++settled;
    slowing.push_back(undisturbed(turns).back() / figure.seconds - 1);
  }
  if (lost.empty()) return "nothing was measured";
  const size_t all = measurements.size();
  if (static_cast<double>(settled) < settled_least * static_cast<double>(all)) {
    const double typical = median(lost);
    const std::string others =
        typical > lost_most ? fmt::format("other work took the CPUs for {:.0f} % of the time", 100 * typical)
                            : std::string("repeated measurements differ by more than the noise of a quiet machine");
    return fmt::format("{} of {} measurements did not settle; {}", all - settled, all, others);
  }
  if (median(slowing) > slowing_most)
    return fmt::format("the machine became {:.0f} % slower while it was measured", 100 * median(slowing));
  return "";
}

}  // namespace runner
