#include "runner/report/terminal_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "runner/base/quoting.hpp"
#include "runner/base/utf8.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

constexpr std::array<int, 7> colours = {36, 33, 35, 32,
                                        34, 31, 37};  // of ANSI: cyan, yellow, magenta, green, blue, red, white
// x marks values that are not finite.
constexpr std::string_view markers = "*o+#@%&$ABCDEFGHIJKLMNOPQRSTUVWYZabcdefghijklmnpqrstuvwyz0123456789";

/// Braille lines that share a colour are interrupted in different ways: of `period` dots, the first `drawn` ones are drawn.
struct Dash {
  int drawn, period;
  const char* sign;  ///< in the legend
};
constexpr std::array<Dash, 3> dashes = {{{.drawn = 1, .period = 1, .sign = "━━"},
                                         {.drawn = 6, .period = 10, .sign = "╍╍"},
                                         {.drawn = 1, .period = 4, .sign = "··"}}};
static_assert(colours.size() * dashes.size() == distinct_lines);

const Dash& dash_of(size_t line) { return dashes[line / colours.size() % dashes.size()]; }

std::string coloured(const std::string& text, size_t line) {
  return fmt::format("\x1b[{}m{}\x1b[0m", colours[line % colours.size()], text);
}

std::string braille(unsigned dots) {
  std::string character;
  unicode::append(character, 0x2800 + dots);
  return character;
}

/// The area of the lines. A dot is a point of a Braille character, or a whole cell.
class Canvas {
 public:
  Canvas(int columns, int rows, bool braille) : columns_(columns), rows_(rows), braille_(braille) {
    cells_.resize(static_cast<size_t>(columns * rows));
  }
  int width() const { return columns_ * (braille_ ? 2 : 1); }
  int height() const { return rows_ * (braille_ ? 4 : 1); }

  /// `y` counts from the bottom.
  void dot(int x, int y, size_t line) {
    x = std::clamp(x, 0, width() - 1);
    y = height() - 1 - std::clamp(y, 0, height() - 1);
    constexpr unsigned bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    auto& cell = braille_ ? at(x / 2, y / 4) : at(x, y);
    cell.dots |= braille_ ? bits[y % 4][x % 2] : 1;
    cell.line = line;
  }
  /// `way`: the length of the line so far, for its dashes.
  void segment(std::pair<int, int> from, std::pair<int, int> to, size_t line, int& way) {
    const Dash& dash = braille_ ? dash_of(line) : dashes[0];
    const int steps = std::max({std::abs(to.first - from.first), std::abs(to.second - from.second), 1});
    for (int i = 0; i <= steps; ++i) {
      if ((way + i) % dash.period >= dash.drawn) continue;
      dot(from.first + static_cast<int>(std::lround(static_cast<double>(to.first - from.first) * i / steps)),
          from.second + static_cast<int>(std::lround(static_cast<double>(to.second - from.second) * i / steps)), line);
    }
    way += steps;
  }
  /// Marks a value that has no place.
  void cross(int x) {
    auto& cell = at(std::clamp(x, 0, width() - 1) / (braille_ ? 2 : 1), rows_ - 1);
    cell.cross = true;
  }
  std::string row(int row, bool colour) const {
    std::string out;
    for (int column = 0; column < columns_; ++column) {
      const auto& cell = cells_[static_cast<size_t>(row * columns_ + column)];
      if (cell.cross) {
        out += "x";
      } else if (cell.dots == 0) {
        out += " ";
      } else {
        const std::string sign = braille_ ? braille(cell.dots) : std::string(1, markers[cell.line % markers.size()]);
        out += colour ? coloured(sign, cell.line) : sign;
      }
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  }

 private:
  struct Cell {
    unsigned dots = 0;
    size_t line = 0;
    bool cross = false;
  };
  std::string braille(unsigned dots) const { return runner::braille(dots); }
  Cell& at(int column, int row) { return cells_[static_cast<size_t>(row * columns_ + column)]; }

  int columns_, rows_;
  bool braille_;
  std::vector<Cell> cells_;
};

void draw_line(const Chart& chart, const std::pair<Range, Range>& ranges, size_t number, Canvas& canvas) {
  const auto& line = chart.lines[number];
  const auto& [xs, ys] = ranges;
  std::pair<int, int> before;
  bool connected = false;  // with `before`
  int way = 0;
  for (const auto& [x, y] : line.smooth.empty() ? line.points : line.smooth) {
    if (!std::isfinite(x) || (chart.log_x && x <= 0)) continue;
    const int column = static_cast<int>(std::lround(xs.place(x, chart.log_x) * (canvas.width() - 1)));
    if (!std::isfinite(y) || (chart.log_y && y <= 0)) {
      canvas.cross(column);
      connected = false;
      continue;
    }
    const std::pair here(column, static_cast<int>(std::lround(ys.place(y, chart.log_y) * (canvas.height() - 1))));
    canvas.segment(connected ? before : here, here, number, way);
    before = here;
    connected = true;
  }
}

/// The labels of the y axis: row from the top -> text.
std::map<int, std::string> row_labels(const Range& range, const Chart& chart, int rows) {
  std::map<int, std::string> labels;
  if (range.empty) return labels;
  for (const double tick : axis_ticks(range.low, range.high, std::max(3, rows / 3), chart.log_y))
    labels[rows - 1 - static_cast<int>(std::lround(range.place(tick, chart.log_y) * (rows - 1)))] = tick_label(tick);
  return labels;
}

/// The labels of the x axis as one line of text. A label that would touch another one is left out.
std::string column_labels(const Range& range, const Chart& chart, int columns) {
  std::string line;
  if (range.empty) return line;
  for (const double tick : axis_ticks(range.low, range.high, std::max(3, columns / 12), chart.log_x)) {
    const std::string label = tick_label(tick);
    const int centre = static_cast<int>(std::lround(range.place(tick, chart.log_x) * (columns - 1)));
    const int begin = std::max(0, centre - static_cast<int>(label.size()) / 2);
    if (!line.empty() && begin < static_cast<int>(line.size()) + 2) continue;
    line.resize(static_cast<size_t>(begin), ' ');
    line += label;
  }
  return line;
}

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

namespace {

/// The names of the curves, cut to the width; whole if two of them would be equal.
std::vector<std::string> legend_of(const Chart& chart, int width) {
  std::vector<std::string> cut, whole;
  for (const auto& line : chart.lines) {
    whole.push_back(one_line(line.label));
    cut.push_back(cut_to_width(whole.back(), width));
  }
  return std::set(cut.begin(), cut.end()).size() == std::set(whole.begin(), whole.end()).size() ? cut : whole;
}

}  // namespace

std::string draw_chart(const Chart& chart, const TerminalChart& terminal) {
  const auto ranges = ranges_of(chart);
  const bool dots = terminal.unicode && (terminal.colour || chart.lines.size() == 1);
  const bool colour = terminal.colour && chart.lines.size() > 1;
  const auto labels = row_labels(ranges.second, chart, terminal.rows);
  size_t margin = 0;
  for (const auto& [row, label] : labels) margin = std::max(margin, label.size());
  const int columns = std::max(10, terminal.columns - static_cast<int>(margin) - 2);
  Canvas canvas(columns, terminal.rows, dots);
  for (size_t i = 0; i < chart.lines.size(); ++i) draw_line(chart, ranges, i, canvas);

  std::string out = chart.title.empty() ? "" : cut_to_width(one_line(chart.title), terminal.columns) + "\n";
  for (int row = 0; row < terminal.rows; ++row) {
    const auto label = labels.find(row);
    const bool tick = label != labels.end();
    out += fmt::format("{:>{}} {}{}\n", tick ? label->second : "", margin,
                       terminal.unicode ? (tick ? "┤" : "│") : (tick ? "+" : "|"), canvas.row(row, colour));
  }
  const std::string x_labels = column_labels(ranges.first, chart, columns);
  out += fmt::format("{:{}}  {}\n{:{}}  {}\n", "", margin, x_labels, "", margin,
                     cut_to_width(one_line(chart.x_label), columns));
  constexpr int sign_width = 4;  // of the longest sign, with a space
  const auto legend = legend_of(chart, columns - sign_width);
  if (chart.lines.size() > 1)
    for (size_t i = 0; i < chart.lines.size(); ++i) {
      const std::string sign = dots ? dash_of(i).sign : std::string(1, markers[i % markers.size()]);
      out += fmt::format("{:{}}  {} {}\n", "", margin, colour ? coloured(sign, i) : sign, legend[i]);
    }
  return out;
}

std::string draw_bars(const BarChart& chart, const TerminalChart& terminal, std::string (*label)(double)) {
  double most = 0;
  size_t names = 0, labels = 0;
  for (const auto& name : chart.names) names = std::max(names, name.size());
  for (const auto& group : chart.groups)
    for (const double value : group.values)
      if (std::isfinite(value)) {
        most = std::max(most, value);
        labels = std::max(labels, label(value).size());
      }
  const int room = std::max(10, terminal.columns - static_cast<int>(names + labels) - 6);
  std::string out = chart.title.empty() ? "" : cut_to_width(one_line(chart.title), terminal.columns) + "\n";
  for (const auto& group : chart.groups) {
    out += one_line(group.label) + "\n";
    for (size_t i = 0; i < group.values.size(); ++i) {
      const double value = group.values[i];
      out += fmt::format("  {:<{}}  ", chart.names[i], names);
      if (!std::isfinite(value)) {
        out += "-\n";
        continue;
      }
      const int length = most > 0 ? std::max(1, static_cast<int>(std::lround(value / most * room))) : 0;
      std::string bar;
      for (int j = 0; j < length; ++j) bar += terminal.unicode ? "█" : "#";
      out += fmt::format("{} {}\n", terminal.colour ? coloured(bar, i) : bar, label(value));
    }
  }
  return out;
}

std::string sparkline(const ChartPoints& points, int columns, bool unicode) {
  constexpr std::array<const char*, 8> blocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::string_view ascii = "_.-=+*%#";
  const size_t buckets = std::min(points.size(), static_cast<size_t>(std::max(1, columns)));
  std::vector<double> means;
  Range range;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    double mean = 0;
    int count = 0;
    for (size_t i = bucket * points.size() / buckets; i < (bucket + 1) * points.size() / buckets; ++i)
      if (const double value = points[i].second; std::isfinite(value)) {
        ++count;
        mean += value / count - mean / count;  // the sum may be too large
      }
    means.push_back(count > 0 ? mean : std::nan(""));
    if (count > 0) range.add(means.back());
  }
  std::string out;
  for (const double mean : means) {
    const auto level = static_cast<size_t>(std::isnan(mean) ? 0 : std::lround(range.place(mean, false) * 7));
    out += std::isnan(mean) ? std::string(" ") : unicode ? blocks[level] : std::string(1, ascii[level]);
  }
  return out;
}

bool colours_wanted(int fd) {
  if (const char* no_color = std::getenv("NO_COLOR"); no_color && *no_color) return false;
  if (const char* force = std::getenv("CLICOLOR_FORCE"); force && std::string_view(force) != "0") return true;
  return can_redraw(fd);
}

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
