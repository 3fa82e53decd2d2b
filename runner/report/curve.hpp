// A curve in text: one filled column for each bucket of points, the value's range on the left, the steps below.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace runner {

struct CurveSize {
  int columns = 60;  ///< at most; fewer points make a narrower curve
  int rows = 6;
};

/// Each column is the mean of its bucket's finite values; a bucket without one is marked with x. Unicode blocks give
/// eight levels a row, ASCII two. Lines end with a newline; "" when there are no points.
std::string draw_curve(const std::vector<std::pair<int64_t, double>>& points, CurveSize size, bool unicode);

}  // namespace runner
