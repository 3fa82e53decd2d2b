#include "runner/train/loss_watch.hpp"

#include <algorithm>
#include <cmath>

namespace runner {

namespace {

double upper_median(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<LossWatch::Spike> LossWatch::take(double loss) {
  if (deviations_ <= 0 || !std::isfinite(loss)) return std::nullopt;
  constexpr int64_t enough = 8;            // earlier steps
  constexpr double normal_scale = 1.4826;  // median absolute deviation -> standard deviation of normal noise
  constexpr double least_rise = 0.1;       // of the median
  std::optional<Spike> spike;
  if (std::ssize(losses_) >= enough) {
    std::vector<double> values(losses_.begin(), losses_.end());
    const double median = upper_median(values);
    for (double& value : values) value = std::abs(value - median);
    const double deviation = normal_scale * upper_median(values);
    const double rise = loss - median;
    const bool up = rise > deviations_ * deviation && rise > least_rise * std::abs(median);
    if (up && !up_) spike = Spike{.expected = median, .deviations = deviation > 0 ? rise / deviation : INFINITY};
    up_ = up;
  }
  losses_.push_back(loss);
  if (std::ssize(losses_) > window_) losses_.pop_front();
  return spike;
}

nlohmann::json LossWatch::state() const { return {{"losses", losses_}, {"up", up_}}; }

void LossWatch::restore(const nlohmann::json& state) {
  losses_.clear();
  for (const auto& loss : state.value("losses", nlohmann::json::array())) losses_.push_back(loss.get<double>());
  while (std::ssize(losses_) > window_) losses_.pop_front();
  up_ = state.value("up", false);
}

}  // namespace runner
