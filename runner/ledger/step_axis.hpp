// Another metric as the horizontal axis of a curve.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace runner {

/// Gives steps the value that a metric (tokens, seconds, epoch) has there. Between two of its points the metric is taken to be straight,
/// because metrics are recorded at different steps: a validation loss between two logged steps has an x value, too.
class StepAxis {
 public:
  using Point = std::pair<int64_t, double>;
  /// `next`: the metric's points, in the order of their steps, then nothing.
  explicit StepAxis(std::function<std::optional<Point>()> next);
  /// The metric's value at `step`, which is at least that of the call before. Nothing: it is before the first point, or after the last.
  std::optional<double> at(int64_t step);

 private:
  void advance();
  std::function<std::optional<Point>()> next_;
  std::optional<Point> before_;  ///< the last point at the step or before it
  std::optional<Point> after_;   ///< the one that follows
};

}  // namespace runner
