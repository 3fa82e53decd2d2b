#include "runner/selection/steadiness.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/quantile.hpp"

namespace runner {

namespace {

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
