// Curves for the screen: a metric of a run, reduced to the least and the greatest value of each column of pixels, so that no spike
// disappears; and what the horizontal axis of a curve may be.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

struct CurveRequest {
  std::string metric;
  std::string x = "step";  ///< or a metric whose value at the step is the x value ("tokens"), see StepAxis
  std::optional<double> from = {}, to = {};  ///< range of x; both ends belong to it. Unset: the whole curve
  int64_t columns = 600;                     ///< of pixels, over the range
  double smoothing = 0;                      ///< weight of the earlier values, 0 (none) to less than 1
};

/// The range of x that all curves of one chart share, so that their columns are the same.
struct CurveRange {
  double low = 0, high = 0;
};

struct Curve {
  std::vector<double> x,
      y;  ///< finite values, ascending x: all of the range, or the least and the greatest of each column
  /// If smoothing is requested: the exponential moving average over all points up to the last one of each column. As TensorBoard's, it
  /// is corrected for its start, and values that are not finite are left out.
  std::vector<double> smooth_x, smooth_y;
  std::vector<double> nan_x, infinity_x,
      minus_infinity_x;  ///< where values are not finite; at most one of each kind per column
  /// The nearest finite points on both sides of the range, to which the line goes on: x, y, and the average there (without smoothing: y).
  std::optional<std::array<double, 3>> before = {}, after = {};
  int64_t points = 0;     ///< of the range, before the reduction
  int64_t nonfinite = 0;  ///< of them
  int64_t without_x = 0;  ///< points of the metric, of any range, at steps where the x metric has no value
  bool complete = false;  ///< x, y are all finite points of the range, and none is without x
};

/// The row number of a metric's name; 0 if there is no such metric.
int64_t metric_key(sqlite::Database& database, const std::string& name);
/// The range of x over these runs (row numbers), within the range of the request. Unset if no run has such a metric.
std::optional<CurveRange> curve_range(sqlite::Database& database, const std::vector<int64_t>& runs,
                                      const CurveRequest& request);
/// Unset if the run has no such metric.
std::optional<Curve> read_curve(sqlite::Database& database, int64_t run, const CurveRequest& request,
                                const CurveRange& range);

/// At most `count` finite values of a metric at equal distances of steps, for a drawing in a table. Costs one search per value.
std::vector<double> sample_curve(sqlite::Database& database, int64_t run, int64_t key, int64_t count);

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

/// The time that a run took, without the pauses between its attempts.
class TrainedTime {
 public:
  TrainedTime(sqlite::Database& database, int64_t run);  ///< `run`: a row number
  /// The seconds that the attempts took together until a moment (Unix seconds). Within a pause: those until its begin.
  double at(double time) const;

 private:
  struct Attempt {
    double started, seconds, seconds_before;  ///< its own, and those of the attempts before
  };
  std::vector<Attempt> attempts_;  ///< in their order
};

}  // namespace runner
