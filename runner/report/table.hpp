// Tables for terminals: columns sized to their content, numbers right-aligned, cut to the terminal's width. UTF-8
// aware.
#pragma once
#include <string>
#include <vector>

namespace runner {

struct Column {
  std::string title;
  bool right = false;       ///< numbers
  bool may_shrink = false;  ///< is cut with an ellipsis when the terminal is too narrow
};
/// One line for the titles (left out when all are empty) and one a row, each ended by a newline, columns two spaces
/// apart, nothing behind the last. width 0: the terminal's, or unlimited when stdout is not one.
std::string format_table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows,
                         int width = 0);

}  // namespace runner
