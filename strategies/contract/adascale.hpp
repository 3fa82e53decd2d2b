// AdaScale: a learning rate that grows with the number of gradients in an update, as far as these gradients differ.
//
// Let L be the sum of the squared norms of `count` gradients with mean G. Their variance and the squared norm of the true gradient are
// estimated, smoothed over steps, and give the gain of an update: from 1 (equal gradients) to the scale (gradients that have nothing in
// common). The learning rate is multiplied by the gain, and an update counts as that many steps of the schedule.
// Source: Johnson et al., AdaScale SGD (ICML 2020), section 3; defaults and bounds of fairscale/optim/adascale.py.
#pragma once
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "runner/base/error.hpp"

namespace runner {

struct AdaScaleOptions {
  std::optional<double> scale = {};  ///< the largest gain; unset: the number of gradients
  std::optional<double> smoothing =
      {};  ///< weight of the past, at least 0 and below 1; unset: 1 - count / 1000, at least 0
};

/// The squares of one rank's gradients before they are reduced over ranks.
struct OwnSquares {
  double sum = 0;         ///< of the squares of all of them
  int64_t gradients = 0;  ///< of each parameter
};

class AdaScale {
 public:
  explicit AdaScale(AdaScaleOptions options) : options_(options) {}

  /// The gain of an update. `squares`: L. `mean_square`: |G|^2. `count`: at least 2.
  double gain(double squares, double mean_square, int64_t count) {
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

  nlohmann::json state() const {
    return {{"variance", variance_}, {"square", square_}, {"weight", weight_}, {"scale", scale_}};
  }
  void load(const nlohmann::json& state) {
    state.at("variance").get_to(variance_);
    state.at("square").get_to(square_);
    state.at("weight").get_to(weight_);
    state.at("scale").get_to(scale_);
  }

 private:
  AdaScaleOptions options_;
  double variance_ = 0, square_ = 0;  ///< weighted sums of the estimates of all steps
  double weight_ = 0;                 ///< the sum of their weights, below 1 in the first steps
  double scale_ = 0;                  ///< of the last step; a variance is proportional to it
};

}  // namespace runner
