// Draws charts and curves as text.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runner/report/chart.hpp"

namespace runner {

struct TerminalChart {
  int columns = 80, rows = 20;  ///< of the whole picture, and of the lines' area
  /// Braille characters, 2 x 4 points each. Otherwise, or if several lines have no colours, each line is drawn with a character of its
  /// own, one for each cell.
  bool unicode = true;
  bool colour = false;
};

/// Title, area with axes, and a legend if there are several lines. A smoothed line is drawn without its raw points. `x` at the lower
/// edge marks values that are not finite, or not positive on a logarithmic axis. Each text line ends with a newline.
std::string draw_chart(const Chart& chart, const TerminalChart& terminal);

/// Horizontal bars, those of a group below each other, with `label` of each value.
std::string draw_bars(const BarChart& chart, const TerminalChart& terminal, std::string (*label)(double));

/// One line of blocks, one for each bucket of points; " " for a bucket without finite values. At most `columns` characters.
std::string sparkline(const ChartPoints& points, int columns, bool unicode);

/// Whether output to a terminal at `fd` may have colours: NO_COLOR, CLICOLOR_FORCE.
bool colours_wanted(int fd);

struct CurveSize {
  int columns = 60;  ///< at most; fewer points make a narrower curve
  int rows = 6;
};

/// `points`: (step, value). Each column shows the mean of its bucket's finite values; x marks a bucket without any. A row
/// has eight levels with Unicode blocks and two with ASCII. Each line ends with a newline. Returns "" for no points.
std::string draw_curve(const std::vector<std::pair<int64_t, double>>& points, CurveSize size, bool unicode);

}  // namespace runner
