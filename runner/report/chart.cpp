#include "runner/report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace runner {

ChartPoints smoothed(const ChartPoints& points, double weight) {
  const bool constant =
      std::ranges::all_of(points, [&](const auto& point) { return point.second == points[0].second; });
  if (constant) return points;
  ChartPoints out;
  double sum = 0, count = 0;
  for (const auto& [x, y] : points) {
    if (!std::isfinite(y)) {
      out.emplace_back(x, y);
      continue;
    }
    sum = weight * sum + (1 - weight) * y;
    out.emplace_back(x, sum / (1 - std::pow(weight, ++count)));
  }
  return out;
}

namespace {

std::vector<double> linear_ticks(double low, double high, int most) {
  // Several ticks would be the same number if the values differ by rounding only.
  if (!(high - low > 1e-9 * std::max(std::abs(low), std::abs(high)))) return {low};
  const double parts = std::max(1, most - 1), rough = high / parts - low / parts;  // high - low may be too large
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0})
    if (std::floor(high / (factor * power) + 1e-9) - std::ceil(low / (factor * power) - 1e-9) + 1 <= most) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  const auto first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i == 0 ? 0 : i * step);
  return ticks;
}

std::vector<double> decade_ticks(double low, double high, int most) {
  const auto first = std::floor(std::log10(low)), last = std::ceil(std::log10(high));
  const auto within = [&](const std::vector<double>& factors, double every) {
    std::vector<double> ticks;
    for (double power = first; power <= last; power += every)
      for (const double factor : factors)
        if (const double tick = factor * std::pow(10, power); tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9))
          ticks.push_back(tick);
    return ticks;
  };
  const std::vector<double> fine = within({1, 2, 5}, 1);
  if (static_cast<int>(fine.size()) <= most && fine.size() >= 2) return fine;
  for (double every = 1;; ++every)
    if (auto ticks = within({1}, every); static_cast<int>(ticks.size()) <= most)
      return ticks.empty() ? linear_ticks(low, high, most) : ticks;
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int most, bool logarithmic) {
  if (!(high > low)) return {low};
  return logarithmic ? decade_ticks(low, high, most) : linear_ticks(low, high, most);
}

std::string tick_label(double value) {
  struct Unit {
    double size;
    const char* sign;
  };
  constexpr std::array<Unit, 4> units = {{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}}};
  if (std::abs(value) >= 1e4 && std::abs(value) < 1e15)
    for (const auto& unit : units)
      if (std::abs(value) >= unit.size) return fmt::format("{:.4g}{}", value / unit.size, unit.sign);
  return fmt::format("{:.4g}", value);
}

void Range::add(double value) {
  low = empty ? value : std::min(low, value);
  high = empty ? value : std::max(high, value);
  empty = false;
}

double Range::place(double value, bool logarithmic) const {
  if (low == high) return 0.5;
  if (logarithmic) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  return (value / 2 - low / 2) / (high / 2 - low / 2);  // high - low may be too large
}

std::pair<Range, Range> ranges_of(const Chart& chart) {
  std::pair<Range, Range> ranges;
  const auto fits = [](double value, bool logarithmic) { return std::isfinite(value) && (!logarithmic || value > 0); };
  for (const auto& line : chart.lines)
    for (const auto* points : {&line.points, &line.smooth})
      for (const auto& [x, y] : *points) {
        if (!fits(x, chart.log_x)) continue;
        ranges.first.add(x);
        if (fits(y, chart.log_y)) ranges.second.add(y);
      }
  return ranges;
}

}  // namespace runner
