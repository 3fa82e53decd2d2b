// A Parzen estimate of one parameter: kernels at observed values, and a prior over the whole range.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "runner/sweep/random_bits.hpp"
#include "runner/sweep/space.hpp"

namespace runner::sweep {

/// Kernel i stands for observation i, the last one for the prior. Numbers: normal kernels cut off at the range's ends,
/// as wide as the gap to the farther neighbour, but not narrower than range / min(100, n + 2); in logarithms where the
/// parameter is. Choices: counts. The newest 25 observations have full weight, older ones less the older they are. All
/// as Optuna 5 does it.
class Parzen {
 public:
  /// `observed`: oldest first. `parameter` must outlive this.
  Parzen(const Parameter& parameter, const std::vector<nlohmann::json>& observed, double prior_weight);

  /// Equal for estimates of equally many observations.
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
  std::vector<double> centers_, widths_;   ///< of numbers
  std::vector<double> masses_;             ///< of each kernel within the range
  std::vector<size_t> observed_choices_;   ///< of choices
  double prior_ = 0;                       ///< of choices: weight of each within a kernel
  double low_ = 0, high_ = 0, grain_ = 0;  ///< the range in the kernels' coordinate; grain in values
};

/// log of the sum over kernels of weight x the product of all parameters' densities: one estimate of all of them.
/// `estimates` are of the same observations; values[i] belongs to estimates[i].
double log_joint_density(const std::vector<const Parzen*>& estimates, const std::vector<nlohmann::json>& values);

}  // namespace runner::sweep
