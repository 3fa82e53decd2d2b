// The median of a few numbers.
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

}  // namespace runner
