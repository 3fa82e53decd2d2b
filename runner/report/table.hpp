// Formats tables for terminals: columns fit their content, numbers are right-aligned, lines are cut to the terminal's
// width. Widths are those of UTF-8 text.
#pragma once
#include <string>
#include <vector>

namespace runner {

struct Column {
  std::string title = "";
  bool right = false;       ///< right-aligned, for numbers
  bool may_shrink = false;  ///< cells are cut with an ellipsis if the terminal is too narrow
};
/// A table with a line for the titles, unless all are empty, and a line for each row. Each line ends with a newline. Two spaces
/// separate the columns; there are no trailing spaces. width 0: the terminal's width, unlimited if stdout is not a
/// terminal.
std::string format_table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows,
                         int width = 0);

}  // namespace runner
