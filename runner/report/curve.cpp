#include "runner/report/curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace runner {

namespace {

constexpr int levels = 8;  // in one row
constexpr std::array<const char*, levels + 1> unicode_blocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, levels + 1> ascii_blocks = {" ", ".", ".", ".", ".", "#", "#", "#", "#"};

std::vector<std::optional<double>> bucket_means(const std::vector<std::pair<int64_t, double>>& points, size_t buckets) {
  std::vector<std::optional<double>> means(buckets);
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    double sum = 0;
    int count = 0;
    for (size_t i = bucket * points.size() / buckets; i < (bucket + 1) * points.size() / buckets; ++i)
      if (std::isfinite(points[i].second)) {
        sum += points[i].second;
        ++count;
      }
    if (count > 0) means[bucket] = sum / count;
  }
  return means;
}

}  // namespace

std::string draw_curve(const std::vector<std::pair<int64_t, double>>& points, CurveSize size, bool unicode) {
  if (points.empty()) return "";
  const auto means = bucket_means(points, std::min(points.size(), static_cast<size_t>(size.columns)));
  std::optional<double> low, high;
  for (const auto& mean : means)
    if (mean) {
      low = std::min(low.value_or(*mean), *mean);
      high = std::max(high.value_or(*mean), *mean);
    }
  // The least value has height 1, so that it is visible. A constant curve is drawn at half height.
  const auto height = [&](double value) {
    if (*low == *high) return size.rows * levels / 2;
    return 1 + static_cast<int>(std::lround((value - *low) / (*high - *low) * (size.rows * levels - 1)));
  };
  const auto& blocks = unicode ? unicode_blocks : ascii_blocks;
  const std::string top = high ? fmt::format("{:.4g}", *high) : "", bottom = low ? fmt::format("{:.4g}", *low) : "";
  const size_t margin = std::max(top.size(), bottom.size());
  std::string out;
  for (int row = size.rows - 1; row >= 0; --row) {
    const std::string& label = row == size.rows - 1 ? top : row == 0 ? bottom : "";
    out += fmt::format("{:>{}} {}", label, margin, unicode ? "│" : "|");
    std::string line;
    for (const auto& mean : means)
      line += mean       ? blocks[static_cast<size_t>(std::clamp(height(*mean) - row * levels, 0, levels))]
              : row == 0 ? "x"
                         : " ";
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  const std::string first = std::to_string(points.front().first), last = std::to_string(points.back().first);
  const size_t axis = std::max(means.size(), first.size() + 1 + last.size());
  out += fmt::format("{:{}}  {}{:>{}}\n", "", margin, first, points.size() > 1 ? last : "",
                     points.size() > 1 ? axis - first.size() : 0);
  return out;
}

}  // namespace runner
