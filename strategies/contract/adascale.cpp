#include "strategies/contract/adascale.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner {

double AdaScale::gain(double squares, double mean_square, int64_t count) {
  RUNNER_CHECK(count >= 2, "AdaScale compares several gradients, not {}", count);
  constexpr double least_variance = 1e-6;
  const auto number = static_cast<double>(count);
  const double scale = options_.scale.value_or(number);
  const double past = options_.smoothing.value_or(std::max(1 - number / 1000, 0.0));
  const double variance = (squares * scale / number - mean_square * scale) / (number - 1);
  const double square = mean_square - variance / scale;
  if (scale_ > 0) variance_ *= scale / scale_;  // the number of ranks may have changed
  scale_ = scale;
  variance_ = past * variance_ + (1 - past) * std::max(variance, least_variance);
  square_ = past * square_ + (1 - past) * std::max(square, 0.0);
  weight_ = past * weight_ + (1 - past);
  const double smooth_variance = variance_ / weight_, smooth_square = square_ / weight_;
  return (smooth_variance + smooth_square) / (smooth_variance / scale + smooth_square);
}

nlohmann::json AdaScale::state() const {
  return {{"variance", variance_}, {"square", square_}, {"weight", weight_}, {"scale", scale_}};
}

void AdaScale::load(const nlohmann::json& state) {
  state.at("variance").get_to(variance_);
  state.at("square").get_to(square_);
  state.at("weight").get_to(weight_);
  state.at("scale").get_to(scale_);
}

}  // namespace runner
