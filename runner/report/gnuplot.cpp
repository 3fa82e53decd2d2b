#include "runner/report/gnuplot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runner/base/capture.hpp"
#include "runner/base/error.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

// Okabe and Ito's colours, which people with colour blindness can tell apart (Color Universal Design, 2008).
constexpr std::array<const char*, 7> line_colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                     "#e69f00", "#56b4e9", "#000000"};

/// Larger numbers are undefined for gnuplot.
double drawable(double value) { return std::clamp(value, -8.9e307, 8.9e307); }

constexpr size_t dash_types = 4;  // gnuplot's dash types 1 (solid) to 4, for lines with the same colour

std::string head(const std::string& terminal, const std::string& output, ImageSize size, const std::string& title) {
  std::string out = fmt::format(
      "set encoding utf8\nset terminal {} noenhanced size {},{} {}\nset output {}\n", terminal, size.width, size.height,
      terminal == "svg" ? "dynamic background rgb 'white'" : "background rgb 'white'", gnuplot_string(output));
  if (!title.empty()) out += fmt::format("set title {}\n", gnuplot_string(title));
  return out + "set border 3 lc rgb '#555555'\nset tics nomirror\nset grid lc rgb '#dddddd' lt 1\n";
}

/// The range of an axis and its labels, which are those of the terminal. `most`: labels.
std::string axis(const char* name, const Range& range, int most, bool logarithmic) {
  std::string out = logarithmic ? fmt::format("set logscale {}\n", name) : "";
  if (range.empty) return out + fmt::format("set {}range [0:1]\n", name);
  if (!(range.low < range.high)) return out;
  std::vector<std::string> ticks;
  for (const double tick : axis_ticks(range.low, range.high, most, logarithmic))
    ticks.push_back(fmt::format("{} {}", gnuplot_string(tick_label(tick)), tick));
  return out + fmt::format("set {0}range [{1}:{2}]\nset {0}tics ({3})\n", name, drawable(range.low),
                           drawable(range.high), join(ticks, ", "));
}

/// A legend with long labels would take the chart's width.
const char* key_place(const Chart& chart) {
  constexpr size_t long_label = 20;
  const bool is_long =
      std::ranges::any_of(chart.lines, [](const auto& line) { return line.label.size() > long_label; });
  return is_long ? "below left Left reverse" : "outside right top";
}

/// A named block of data. An empty line interrupts the line that is drawn where a value is not finite.
std::string data_block(const std::string& name, const ChartPoints& points, const Chart& chart) {
  std::string out = fmt::format("${} << END_OF_DATA\n", name);
  bool any = false;
  for (const auto& [x, y] : points) {
    const bool drawn = std::isfinite(x) && std::isfinite(y) && (!chart.log_x || x > 0) && (!chart.log_y || y > 0);
    any = any || drawn;
    out += drawn ? fmt::format("{} {}\n", drawable(x), drawable(y)) : "\n";
  }
  // gnuplot refuses a block without a point.
  return out + (any ? "" : "NaN NaN\n") + "END_OF_DATA\n";
}

/// The places of the values that cannot be drawn, at the lower edge.
ChartPoints gaps_of(const Chart& chart, double bottom) {
  ChartPoints gaps;
  for (const auto& line : chart.lines)
    for (const auto& [x, y] : line.points)
      if (std::isfinite(x) && (!chart.log_x || x > 0) && (!std::isfinite(y) || (chart.log_y && y <= 0)))
        gaps.emplace_back(x, bottom);
  return gaps;
}

std::string image_kind(const std::string& file) { return file.ends_with(".svg") ? "svg" : "pngcairo"; }

template <typename Drawn>
void write(const Drawn& chart, const std::string& file, ImageSize size) {
  check_image_name(file);
  const ScratchFolder folder(fs::temp_directory_path());
  const std::string image = (folder.path() / "image").string(), script = (folder.path() / "script").string();
  write_file_atomic(script, gnuplot_script(chart, image_kind(file), image, size));
  const auto answer = capture({"gnuplot", script}, {.timeout = std::chrono::minutes(2), .with_stderr = true});
  if (answer.status < 0 && !answer.too_late)
    throw environment_error(
        "cannot write {}: gnuplot draws it, and it is not installed ({}). On Debian and Ubuntu: apt-get install "
        "gnuplot-nox",
        file, answer.output);
  if (answer.status != 0 || !fs::exists(image))
    throw environment_error("cannot write {}: gnuplot {}{}", file,
                            answer.too_late ? "took longer than 2 min" : "failed: ", std::string(trim(answer.output)));
  write_file_atomic(file, read_file(image));
}

}  // namespace

std::string gnuplot_script(const Chart& chart, const std::string& terminal, const std::string& output, ImageSize size) {
  std::string out = head(terminal, output, size, chart.title);
  out += fmt::format("set xlabel {} offset 0,0.3\nset ylabel {}\nset key {}\n", gnuplot_string(chart.x_label),
                     gnuplot_string(chart.y_label), key_place(chart));
  if (chart.lines.size() < 2 && chart.lines[0].smooth.empty()) out += "set key off\n";
  const auto [x, y] = ranges_of(chart);
  constexpr int pixels_of_x_label = 120, pixels_of_y_label = 60;
  out += axis("x", x, std::max(2, size.width / pixels_of_x_label), chart.log_x);
  out += axis("y", y, std::max(2, size.height / pixels_of_y_label), chart.log_y);
  const auto gaps = gaps_of(chart, y.empty ? 0 : y.low);
  if (!gaps.empty()) out += data_block("gaps", gaps, {});
  std::vector<std::string> plots;
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const auto& line = chart.lines[i];
    const std::string colour = line_colours[i % line_colours.size()], number = std::to_string(i);
    const size_t dash = i / line_colours.size() % dash_types + 1;
    const bool smooth = !line.smooth.empty();
    out += data_block("raw" + number, line.points, chart);
    if (smooth) out += data_block("smooth" + number, line.smooth, chart);
    const bool single = line.points.size() == 1;  // a line through one point is not visible
    plots.push_back(fmt::format("$raw{} using 1:2 with {} lc rgb '{}{}' {}", number,
                                single ? "points pt 7" : fmt::format("lines lw 1.5 dt {}", dash), smooth ? "#B0" : "#",
                                colour.substr(1), smooth ? "notitle" : "title " + gnuplot_string(line.label)));
    if (smooth)
      plots.push_back(fmt::format("$smooth{} using 1:2 with lines lw 2 dt {} lc rgb '{}' title {}", number, dash,
                                  colour, gnuplot_string(line.label)));
  }
  if (!gaps.empty())
    plots.push_back(fmt::format("$gaps using 1:2 with points pt 2 ps 0.8 lc rgb '#cc0000' title {}",
                                gnuplot_string(chart.log_y ? "not finite or not positive" : "not finite")));
  return out + "plot " + join(plots, ", \\\n  ") + "\n";
}

std::string gnuplot_script(const BarChart& chart, const std::string& terminal, const std::string& output,
                           ImageSize size) {
  std::string out = head(terminal, output, size, chart.title);
  out += fmt::format(
      "set ylabel {}\nset style data histogram\nset style histogram clustered gap 1\nset style fill solid 0.9\nset "
      "yrange [0:*]\n"
      "set key outside right top\n",
      gnuplot_string(chart.y_label));
  std::string labels, rows;
  for (size_t i = 0; i < chart.groups.size(); ++i) {
    labels += fmt::format("{}{} {}", i > 0 ? ", " : "", gnuplot_string(chart.groups[i].label), i);
    for (const double value : chart.groups[i].values) rows += std::isfinite(value) ? fmt::format("{} ", value) : "NaN ";
    rows += "\n";
  }
  out += fmt::format("set xtics rotate by -20 ({})\n$bars << END_OF_DATA\n{}END_OF_DATA\n", labels, rows);
  std::vector<std::string> plots;
  for (size_t i = 0; i < chart.names.size(); ++i)
    plots.push_back(fmt::format("$bars using {} lc rgb '{}' title {}", i + 1, line_colours[i % line_colours.size()],
                                gnuplot_string(chart.names[i])));
  return out + "plot " + join(plots, ", \\\n  ") + "\n";
}

void check_image_name(const std::string& file) {
  if (!file.ends_with(".svg") && !file.ends_with(".png"))
    throw usage_error("--output {}: the name must end in .svg or .png, which decides the format", file);
}

void write_image(const Chart& chart, const std::string& file, ImageSize size) { write(chart, file, size); }
void write_image(const BarChart& chart, const std::string& file, ImageSize size) { write(chart, file, size); }

}  // namespace runner
