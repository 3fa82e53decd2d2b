// A chart of several lines: what `runner plot` draws in the terminal and in files.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace runner {

/// (x, y), in the order of the steps. Values that are not finite have no place in the chart; they are marked at its lower edge.
using ChartPoints = std::vector<std::pair<double, double>>;

struct ChartLine {
  std::string label;
  ChartPoints points = {};  ///< as recorded
  ChartPoints smooth = {};  ///< drawn in front of the points; empty: not smoothed
};

/// More lines than that share colours and dashes, in the terminal at the latest.
inline constexpr size_t distinct_lines = 21;

struct Chart {
  std::string title = "", x_label = "step", y_label = "";
  std::vector<ChartLine> lines = {};
  bool log_x = false, log_y = false;
};

/// Bars beside each other, e.g. predicted and measured memory: values[i] belongs to names[i]; NaN: there is no value.
struct BarGroup {
  std::string label;
  std::vector<double> values;
};
struct BarChart {
  std::string title = "", y_label = "";
  std::vector<std::string> names = {};
  std::vector<BarGroup> groups = {};
};

/// Exponential moving average as TensorBoard draws it: s = weight * s + (1 - weight) * y, from s = 0, divided by
/// 1 - weight^n after n values, so that the first ones are not too small. Values that are not finite stay as they are and do not count;
/// equal values stay equal. `weight` in [0, 1).
ChartPoints smoothed(const ChartPoints& points, double weight);

/// The places of an axis from `low` to `high` with at most `most` labels: multiples of 1, 2 or 5 times a power of ten; with `logarithmic`,
/// powers of ten, or 1, 2 and 5 times these if there are few.
std::vector<double> axis_ticks(double low, double high, int most, bool logarithmic);

/// A short label: "0.001", "1.5", "20k", "3M".
std::string tick_label(double value);

struct Range {
  double low = 0, high = 1;
  bool empty = true;
  void add(double value);
  /// Where `value` is, from 0 (low) to 1 (high). Both are equal: 0.5.
  double place(double value, bool logarithmic) const;
};
/// The ranges of x and of y, of the values that can be drawn: finite, and with a logarithmic axis positive.
std::pair<Range, Range> ranges_of(const Chart& chart);

}  // namespace runner
