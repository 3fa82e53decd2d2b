// Charts: smoothing, ticks, drawings in the terminal, and the files that gnuplot writes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "../ledger/support.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/report/chart.hpp"
#include "runner/report/gnuplot.hpp"
#include "runner/report/terminal_chart.hpp"
#include "verb.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

Chart line_chart(ChartPoints points) {
  Chart chart{.y_label = "loss"};
  chart.lines.push_back({.label = "a", .points = std::move(points)});
  return chart;
}

}  // namespace

TEST_CASE("values that differ by rounding have one tick") {
  ChartPoints points = {{1, 0.0006}, {2, std::nextafter(0.0006, 1)}};
  const std::string drawn = draw_chart(line_chart(points), {.columns = 60, .rows = 8});
  CHECK_THAT(drawn, ContainsSubstring("0.0006"));
}

namespace {

bool has_gnuplot() { return std::system("gnuplot --version >/dev/null 2>&1") == 0; }

bool is_xml(const fs::path& file) {
  const std::string command =
      "python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' '" + file.string() + "'";
  return std::system(command.c_str()) == 0;
}

/// The vertices of the path with a stroke colour, e.g. "rgb(  0, 114, 178)".
size_t vertices(const std::string& svg, const std::string& colour) {
  size_t count = 0;
  const std::string begin = "<path stroke='" + colour + "'", data = " d='";
  for (size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    const size_t first = svg.find(data, at) + data.size();
    const auto drawn = std::string_view(svg).substr(first, svg.find('\'', first) - first);
    count += static_cast<size_t>(std::ranges::count_if(drawn, [](char c) { return c == 'M' || c == 'L'; }));
  }
  return count;
}

}  // namespace

TEST_CASE("smoothing is TensorBoard's: debiased, without values that are not finite, and constant curves stay") {
  const auto smooth = smoothed({{0, 1}, {1, 2}, {2, none}, {3, 4}}, 0.6);
  // By hand: 0.4*1 = 0.4, /(1-0.6) = 1; 0.6*0.4+0.4*2 = 1.04, /(1-0.36) = 1.625; 0.6*1.04+0.4*4 = 2.224, /(1-0.216).
  CHECK_THAT(smooth[0].second, WithinRel(1.0));
  CHECK_THAT(smooth[1].second, WithinRel(1.625));
  CHECK(std::isnan(smooth[2].second));
  CHECK_THAT(smooth[3].second, WithinRel(2.224 / 0.784));
  CHECK(smoothed({{0, 0.1}, {1, 0.1}, {2, 0.1}}, 0.99) == ChartPoints{{0, 0.1}, {1, 0.1}, {2, 0.1}});
  CHECK(smoothed({}, 0.6).empty());
}

TEST_CASE("ticks are round numbers, and powers of ten on a logarithmic axis") {
  CHECK(axis_ticks(0, 100, 6, false) == std::vector<double>{0, 20, 40, 60, 80, 100});
  CHECK(axis_ticks(1.2, 3.9, 4, false) == std::vector<double>{2, 3});
  CHECK(axis_ticks(5, 5, 4, false) == std::vector<double>{5});
  CHECK(axis_ticks(1, 1000, 4, true) == std::vector<double>{1, 10, 100, 1000});
  CHECK(axis_ticks(1, 9, 4, true) == std::vector<double>{1, 2, 5});
  CHECK(tick_label(20000) == "20k");
  CHECK(tick_label(3e6) == "3M");
  CHECK(tick_label(0.0001) == "0.0001");
  CHECK(tick_label(1200) == "1200");
}

TEST_CASE("a curve is drawn with Braille characters, with a mark where a value is not finite") {
  const auto chart = line_chart({{0, 4}, {1, 3}, {2, none}, {3, 1}, {4, 0}});
  CHECK(draw_chart(chart, {.columns = 20, .rows = 4}) ==
        "4 ┤⠑⠢⢄⡀\n"
        "2 ┤   ⠈⠁\n"
        "  │            ⢀\n"
        "0 ┤        x    ⠉⠒⠤⣀\n"
        "   0       2       4\n"
        "   step\n");
}

TEST_CASE("without Unicode, each line has its own character and there is a legend") {
  Chart chart = line_chart({{0, 0}, {10, 10}});
  chart.lines.push_back({.label = "b", .points = {{0, 10}, {10, 0}}});
  chart.title = "two";
  CHECK(draw_chart(chart, {.columns = 15, .rows = 3, .unicode = false}) ==
        "two\n"
        "10 +ooo     ***\n"
        " 5 +   ooooo\n"
        " 0 +***     ooo\n"
        "    0    5   10\n"
        "    step\n"
        "    * a\n"
        "    o b\n");
  const std::string coloured = draw_chart(chart, {.columns = 15, .rows = 3, .unicode = true, .colour = true});
  CHECK_THAT(coloured, ContainsSubstring("\x1b[36m━━\x1b[0m a\n") && ContainsSubstring("\x1b[33m━━\x1b[0m b\n"));
}

TEST_CASE("each of 21 lines has a look of its own") {
  Chart chart;
  for (int i = 0; i < 21; ++i)
    chart.lines.push_back({.label = "line " + std::to_string(i), .points = {{0, i}, {10, i}}});
  const std::string plain = draw_chart(chart, {.columns = 40, .rows = 21, .unicode = false});
  std::set<char> signs;
  for (const auto& line : split(plain, '\n'))
    if (const auto at = line.find(" line "); at != std::string::npos) signs.insert(line[at - 1]);
  CHECK(signs.size() == 21);
  CHECK_FALSE(signs.contains('x'));
  const std::string coloured = draw_chart(chart, {.columns = 40, .rows = 21, .unicode = true, .colour = true});
  CHECK_THAT(coloured, ContainsSubstring("\x1b[36m━━\x1b[0m line 0\n") &&
                           ContainsSubstring("\x1b[36m╍╍\x1b[0m line 7\n") &&
                           ContainsSubstring("\x1b[36m··\x1b[0m line 14\n"));
  std::set<std::string> looks;  // of the rows, without their labels
  for (int row = 0; row < 21; ++row) {
    const std::string line = split(coloured, '\n')[static_cast<size_t>(row)];
    looks.insert(line.substr(line.find("\x1b")));
  }
  CHECK(looks.size() == 21);
  const std::string script = gnuplot_script(chart, "svg", "x.svg", {});
  CHECK_THAT(script, ContainsSubstring("lines lw 1.5 dt 1 lc rgb '#0072b2' title 'line 0'") &&
                         ContainsSubstring("lines lw 1.5 dt 2 lc rgb '#0072b2' title 'line 7'") &&
                         ContainsSubstring("set key outside right top\n"));
  chart.lines[0].label = "a name that is much longer";
  CHECK_THAT(gnuplot_script(chart, "svg", "x.svg", {}), ContainsSubstring("set key below left"));
}

TEST_CASE("a file has the data's range and the labels of the terminal") {
  Chart chart = line_chart({{1000, 3.9}, {400'000, 1.7}});
  chart.log_y = true;
  CHECK_THAT(gnuplot_script(chart, "svg", "x.svg", {}),
             ContainsSubstring("set xrange [1000:400000]\nset xtics ('50k' 50000, '100k' 100000, ") &&
                 ContainsSubstring("set logscale y\nset yrange [1.7:3.9]\nset ytics ('2' 2, '2.5' 2.5, "));
}

TEST_CASE("values near the largest double are drawn") {
  CHECK(draw_chart(line_chart({{0, -1e308}, {1, 1e308}}), {.columns = 20, .rows = 3, .unicode = false}) ==
        " 1e+308 +        ***\n"
        "      0 +   *****\n"
        "-1e+308 +***\n"
        "         0   0.5   1\n"
        "         step\n");
  CHECK_THAT(gnuplot_script(line_chart({{0, -1e308}, {1, 1e308}}), "svg", "x.svg", {}),
             ContainsSubstring("\n0 -8.9e+307\n1 8.9e+307\n") && ContainsSubstring("yrange [-8.9e+307:8.9e+307]"));
  CHECK(sparkline({{0, 1e308}, {1, 1e308}, {2, -1e308}, {3, -1e308}}, 2, false) == "#_");
}

TEST_CASE("bars and sparklines") {
  const BarChart chart{.names = {"predicted", "measured"}, .groups = {{"a", {2, 1}}, {"b", {none, 2}}}};
  CHECK(draw_bars(chart, {.columns = 30, .unicode = false}, tick_label) ==
        "a\n  predicted  ############## 2\n  measured   ####### 1\nb\n  predicted  -\n  measured   ############## 2\n");
  CHECK(sparkline({{0, 1}, {1, 2}, {2, 3}, {3, none}}, 10, true) == "▁▅█ ");
  CHECK(sparkline({{0, 1}, {1, 1}, {2, 3}, {3, 3}}, 2, false) == "_#");
  CHECK(sparkline({}, 10, true) == "");
}

TEST_CASE("an SVG parses as XML and has a vertex for each point, and a PNG has its signature and size") {
  if (!has_gnuplot()) SKIP("there is no gnuplot");
  LedgerFolder folder;
  ChartPoints points;
  for (int i = 0; i < 3000; ++i) points.emplace_back(i, std::sin(i * 0.7) + 2);
  Chart chart = line_chart(points);
  chart.lines[0].label = "a <b> & \"c\" \\d {e}_f";
  const auto svg = folder.path / "loss.svg", png = folder.path / "loss.png";
  write_image(chart, svg.string(), {});
  CHECK(is_xml(svg));
  CHECK(vertices(read_file(svg), "rgb(  0, 114, 178)") >= points.size());

  chart.lines[0].smooth = smoothed(points, 0.6);
  chart.log_y = true;
  write_image(chart, svg.string(), {});
  CHECK(is_xml(svg));
  const std::string text = read_file(svg);
  CHECK_THAT(text, ContainsSubstring("a &lt;b> &amp; \"c\" \\d {e}_f"));

  write_image(chart, png.string(), {.width = 640, .height = 333});
  const std::string image = read_file(png);
  CHECK(image.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(image[at + i]);
    return value;
  };
  CHECK(number(16) == 640);
  CHECK(number(20) == 333);
}

TEST_CASE("names are no commands for gnuplot") {
  if (!has_gnuplot()) SKIP("there is no gnuplot");
  LedgerFolder folder;
  const auto gone = folder.path / "gone", svg = folder.path / "a.svg";
  const std::string name = "it's a`touch " + gone.string() + "`";
  Chart chart = line_chart({{0, 1}, {1, 2}});
  chart.title = chart.x_label = chart.y_label = chart.lines[0].label = name;
  chart.lines.push_back({.label = name, .points = {{0, 3}}});
  const BarChart bars{.title = name, .y_label = name, .names = {name, "b"}, .groups = {{name, {1, 2}}, {"z", {2, 3}}}};
  for (int drawn = 0; drawn < 2; ++drawn) {
    drawn == 0 ? write_image(chart, svg.string(), {}) : write_image(bars, svg.string(), {});
    CHECK_FALSE(fs::exists(gone));
    CHECK(is_xml(svg));
    CHECK_THAT(read_file(svg), ContainsSubstring(name));
  }
  CHECK_THAT(read_file(svg), ContainsSubstring(">z<"));
}

TEST_CASE("a chart without any finite value is drawn too, and other names are refused") {
  const auto chart = line_chart({{0, none}, {1, std::numeric_limits<double>::infinity()}});
  CHECK_THAT(draw_chart(chart, {.columns = 20, .rows = 2, .unicode = false}), ContainsSubstring("x"));
  CHECK(error_of([&] { write_image(chart, "loss.jpg", {}); }) ==
        "2: --output loss.jpg: the name must end in .svg or .png, which decides the format");
  LedgerFolder folder;
  const auto error = [&] {
    const Variable path("PATH", folder.path.string());
    return error_of([&] { write_image(chart, (folder.path / "a.svg").string(), {}); });
  }();
  CHECK_THAT(error, ContainsSubstring("gnuplot draws it, and it is not installed") &&
                        ContainsSubstring("apt-get install gnuplot-nox"));
  CHECK_FALSE(fs::exists(folder.path / "a.svg"));
  if (!has_gnuplot()) return;
  write_image(chart, (folder.path / "a.svg").string(), {});
  CHECK(is_xml(folder.path / "a.svg"));
}
