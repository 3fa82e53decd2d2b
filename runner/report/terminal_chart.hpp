// Draws charts as text.
#pragma once
#include <string>

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

}  // namespace runner
