#include "runner/report/table.hpp"

#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/quoting.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

constexpr int gap = 2;
constexpr int shrunk_width_min = 6;

/// Repeatedly narrows the widest column that may shrink by one, until the line fits or no column may shrink further.
void shrink(std::vector<int>& widths, const std::vector<Column>& columns, int width) {
  int total = std::accumulate(widths.begin(), widths.end(), gap * (static_cast<int>(widths.size()) - 1));
  for (; total > width; --total) {
    int* widest = nullptr;
    for (size_t i = 0; i < widths.size(); ++i)
      if (columns[i].may_shrink && widths[i] > shrunk_width_min && (!widest || widths[i] > *widest))
        widest = &widths[i];
    if (!widest) return;
    --*widest;
  }
}

std::string format_row(const std::vector<std::string>& cells, const std::vector<Column>& columns,
                       const std::vector<int>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string text = cut_to_width(cells[i], widths[i]);
    const std::string fill(static_cast<size_t>(widths[i] - display_width(text)), ' ');
    line += columns[i].right ? fill + text : text + fill;
    if (i + 1 < cells.size()) line.append(gap, ' ');
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

std::string format_table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows,
                         int width) {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> titles;
  for (const auto& column : columns) titles.push_back(column.title);
  const bool titled = std::any_of(titles.begin(), titles.end(), [](const auto& title) { return !title.empty(); });
  if (titled) lines.push_back(titles);
  for (const auto& row : rows) {
    RUNNER_CHECK(row.size() == columns.size(), "{} cells for {} columns", row.size(), columns.size());
    auto& line = lines.emplace_back();
    for (const auto& cell : row) line.push_back(one_line(cell));
  }
  std::vector<int> widths(columns.size());
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], display_width(line[i]));
  if (width == 0) width = terminal_width(STDOUT_FILENO);
  if (width > 0) shrink(widths, columns, width);
  std::string out;
  for (const auto& line : lines) out += format_row(line, columns, widths);
  return out;
}

}  // namespace runner
