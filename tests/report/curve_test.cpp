// Text curves, compared character by character.
#include "runner/report/terminal_chart.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

using namespace runner;

namespace {
std::vector<std::pair<int64_t, double>> falling() {
  std::vector<std::pair<int64_t, double>> points;
  for (int64_t step = 1; step <= 16; ++step) points.emplace_back(step * 10, static_cast<double>(17 - step));
  return points;
}
}  // namespace

TEST_CASE("a curve has its greatest value at the top, its least at the bottom, and its steps below") {
  CHECK(draw_curve(falling(), {16, 2}, true) ==
        "16 │█▇▆▅▄▃▂▁\n"
        " 1 │█████████▇▆▅▄▃▂▁\n"
        "    10           160\n");
}

TEST_CASE("without Unicode each row has two levels") {
  CHECK(draw_curve(falling(), {16, 2}, false) ==
        "16 |####....\n"
        " 1 |############....\n"
        "    10           160\n");
}

TEST_CASE("points that share a column are drawn as their mean") {
  CHECK(draw_curve(falling(), {4, 1}, true) ==
        "14.5 │█▆▃▁\n"
        "      10 160\n");
}

TEST_CASE("special curves: no points, one point, a flat line, values that are not numbers") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  CHECK(draw_curve({}, {10, 2}, true) == "");
  CHECK(draw_curve({{7, 0.5}}, {10, 1}, true) ==
        "0.5 │▄\n"
        "     7\n");
  CHECK(draw_curve({{1, 2}, {2, 2}, {3, 2}, {4, 2}}, {10, 2}, true) ==
        "2 │\n"
        "2 │████\n"
        "   1  4\n");
  CHECK(draw_curve({{1, 1}, {2, nan}, {3, infinity}, {4, 2}}, {10, 1}, true) ==
        "2 │▁xx█\n"
        "   1  4\n");
  CHECK(draw_curve({{1, nan}, {2, nan}}, {10, 1}, true) ==
        " │xx\n"
        "  1 2\n");
}
