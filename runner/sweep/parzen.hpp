// A Parzen estimate of one parameter: kernels at the observed values, and a prior over the whole range.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "runner/sweep/random_bits.hpp"
#include "runner/sweep/space.hpp"

namespace runner::sweep {

/// Kernel i belongs to observation i, the last kernel to the prior. Numbers have normal kernels, truncated to the range. Their
/// width is the distance to the farther neighbour, but at least range / min(100, n + 2), in logarithms for logarithmic
/// parameters. Choices have counts. The newest 25 observations have full weight; the weight of older ones falls with age. All of
/// this follows Optuna 5.
class Parzen {
 public:
  /// `observed`: oldest first. `parameter` must outlive this.
  Parzen(const Parameter& parameter, const std::vector<nlohmann::json>& observed, double prior_weight);

  /// Depends only on the number of observations.
  const std::vector<double>& weights() const { return weights_; }
  size_t pick_kernel(RandomBits& random) const;
  nlohmann::json draw(size_t kernel, RandomBits& random) const;
  /// Multiplies each kernel's density at `value` (probability, for values with a grain), without its weight, into
  /// products[kernel].
  void multiply(const nlohmann::json& value, std::vector<double>& products) const;

 private:
  double choice_density(size_t kernel, size_t choice) const;
  void place_kernels(const std::vector<double>& observed);

  const Parameter* parameter_;
  std::vector<double> weights_;            ///< sum 1
  std::vector<double> centers_, widths_;   ///< for numbers
  std::vector<double> masses_;             ///< mass of each kernel within the range
  std::vector<size_t> observed_choices_;   ///< for choices
  double prior_ = 0;                       ///< for choices: prior weight of each choice within a kernel
  double low_ = 0, high_ = 0, grain_ = 0;  ///< the range in the kernels' coordinate; grain in values
};

/// Joint estimate of several parameters: the log of the sum over kernels of weight x the product of all densities. `estimates` must
/// be of the same observations; values[i] belongs to estimates[i].
double log_joint_density(const std::vector<const Parzen*>& estimates, const std::vector<nlohmann::json>& values);

}  // namespace runner::sweep
