// The median and other quantiles of a few numbers.
#pragma once
#include <algorithm>
#include <vector>

namespace runner {

/// The middle value, or the greater of the two middle values. `values` must not be empty.
inline double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The quantile `part` (0 to 1) of `values`, without interpolation. `values` must not be empty.
inline double quantile(std::vector<double> values, double part) {
  auto place = values.begin() + static_cast<long>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace runner
