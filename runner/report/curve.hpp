// Draws a curve as text: one filled column for each bucket of points, the range of values on the left, the steps below.
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

/// `points`: (step, value). Each column shows the mean of its bucket's finite values; x marks a bucket without any. A row
/// has eight levels with Unicode blocks and two with ASCII. Each line ends with a newline. Returns "" for no points.
std::string draw_curve(const std::vector<std::pair<int64_t, double>>& points, CurveSize size, bool unicode);

}  // namespace runner
