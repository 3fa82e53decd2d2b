// Problems with a formula, to measure search methods.
#pragma once
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "runner/sweep/space.hpp"

namespace runner::testing {

inline sweep::Parameter real(const std::string& name, double low, double high, bool log = false) {
  sweep::Parameter parameter;
  parameter.name = name;
  parameter.low = low;
  parameter.high = high;
  parameter.log = log;
  return parameter;
}
inline sweep::Parameter integer(const std::string& name, double low, double high, bool log = false, double step = 0) {
  auto parameter = real(name, low, high, log);
  parameter.kind = sweep::Parameter::Kind::integer;
  parameter.step = step;
  return parameter;
}
inline sweep::Parameter choice(const std::string& name, std::vector<nlohmann::json> choices) {
  sweep::Parameter parameter;
  parameter.name = name;
  parameter.kind = sweep::Parameter::Kind::choice;
  parameter.choices = std::move(choices);
  return parameter;
}
inline sweep::Parameter under(sweep::Parameter parameter, const std::string& parent, std::vector<nlohmann::json> when) {
  parameter.parent = parent;
  parameter.when = std::move(when);
  return parameter;
}

/// Minimum 0.397887, at three points.
inline sweep::Space branin_space() { return sweep::Space({real("x", -5, 10), real("y", 0, 15)}); }
inline double branin(const nlohmann::json& point) {
  const double pi = std::numbers::pi, x = point.at("x"), y = point.at("y");
  double curve = y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6;
  return curve * curve + 10 * (1 - 1 / (8 * pi)) * std::cos(x) + 10;
}

/// Minimum -3.32237.
inline sweep::Space hartmann6_space() {
  std::vector<sweep::Parameter> parameters;
  for (int i = 0; i < 6; ++i) parameters.push_back(real("x" + std::to_string(i), 0, 1));
  return sweep::Space(parameters);
}
inline double hartmann6(const nlohmann::json& point) {
  constexpr double a[4] = {1, 1.2, 3, 3.2};
  constexpr double A[4][6] = {
      {10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, 0.05, 10, 0.1, 14}};
  constexpr double P[4][6] = {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
                              {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
                              {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
                              {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}};
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    double distance = 0;
    for (int j = 0; j < 6; ++j) {
      double d = point.at("x" + std::to_string(j)).get<double>() - P[i][j];
      distance += A[i][j] * d * d;
    }
    sum -= a[i] * std::exp(-distance);
  }
  return sum;
}

/// The loss of a training after `step` of 81 steps. It falls as a power of the step to a limit that depends on lr and
/// width, and faster if lr is near its optimum. A ripple makes early curves cross. The best value is 1.0.
inline sweep::Space curve_space() {
  return sweep::Space({real("lr", 1e-5, 1, true), integer("width", 16, 1024, true)});
}
constexpr int64_t curve_steps = 81;
inline double curve(const nlohmann::json& point, int64_t step) {
  double off = std::log10(point.at("lr").get<double>()) + 2.5, wide = std::log2(point.at("width").get<double>()) / 10;
  double floor = 1 + 0.3 * off * off + 0.5 * (1 - wide) * (1 - wide);
  double speed = 0.4 + 0.4 * std::exp(-off * off) - 0.2 * wide;
  double ripple = 0.05 * std::sin(3 * static_cast<double>(step) + 40 * off) / std::sqrt(static_cast<double>(step));
  return floor + 3 * std::pow(static_cast<double>(step), -speed) + ripple;
}

}  // namespace runner::testing
