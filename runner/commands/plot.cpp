// `runner plot`: curves of runs in the terminal, or as SVG or PNG.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/readings.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/curves.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/gnuplot.hpp"
#include "runner/report/terminal.hpp"
#include "runner/report/terminal_chart.hpp"

namespace runner {

namespace {

struct PlotOptions {
  std::vector<std::string> runs = {"last"};
  std::vector<std::string> metrics;
  std::string x, output, title;  ///< x: empty: seconds for readings of the machine, otherwise step
  double smooth = 0;
  bool log_x = false, log_y = false, memory = false, json = false;
  int width = 0, height = 0;  ///< 0: the terminal's, or that of ImageSize
};

/// The points of `metric` over another metric instead of the step. Those without an x value are left out, with a warning.
ChartPoints on_axis(const Ledger& ledger, const std::string& run, const std::string& metric, const std::string& x) {
  const auto points = ledger.points(run, metric), x_points = ledger.points(run, x);
  StepAxis axis([next = x_points.begin(), end = x_points.end()]() mutable {
    return next == end ? std::nullopt : std::optional(*next++);
  });
  ChartPoints out;
  for (const auto& [step, value] : points)
    if (const auto place = axis.at(step)) out.emplace_back(*place, value);
  if (const auto left_out = points.size() - out.size())
    log::warning("run {} has no {} at {} of {}, so they are left out", run, x,
                 counted(static_cast<int64_t>(left_out), "point"), metric);
  return out;
}

/// The monitored metric's chart is of no use before the first validation, so the default is the loss.
std::vector<std::string> metrics_of(const PlotOptions& options) {
  return options.metrics.empty() ? std::vector<std::string>{"loss"} : options.metrics;
}

ChartPoints points_of(const Ledger& ledger, const std::string& run, const std::string& metric, const std::string& x) {
  if (is_reading(ledger, run, metric)) {
    if (x != "seconds")
      throw usage_error("{} is a reading of the machine over time, so it is drawn with --x seconds, not {}", metric, x);
    return ledger.system_over_seconds(run, metric);
  }
  if (x != "step") return on_axis(ledger, run, metric, x);
  const auto points = ledger.points(run, metric);
  return {points.begin(), points.end()};
}

Chart curves(const Ledger& ledger, const std::vector<std::string>& runs, const PlotOptions& options) {
  const auto metrics = metrics_of(options);
  const auto names = short_names(ledger, runs);
  const std::string x = !options.x.empty() ? options.x : are_readings(ledger, runs, metrics) ? "seconds" : "step";
  Chart chart{.title = options.title, .x_label = x, .y_label = metrics.size() == 1 ? metrics[0] : ""};
  chart.log_x = options.log_x;
  chart.log_y = options.log_y;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const auto& metric : metrics) {
      ChartLine line{.label = metrics.size() == 1 ? names[i] : runs.size() == 1 ? metric : names[i] + " " + metric};
      const auto known = ledger.metric_names(runs[i]);
      // If there are several runs, those without the metric are left out.
      if (runs.size() > 1 && std::ranges::find(known, metric) == known.end() && !is_reading(ledger, runs[i], metric)) {
        log::warning("run {} has no metric \"{}\", so it is left out", runs[i], metric);
        continue;
      }
      const bool lacks_x = x != "step" && std::ranges::find(known, x) == known.end();
      if (runs.size() > 1 && lacks_x && !is_reading(ledger, runs[i], metric)) {
        log::warning("run {} has no metric \"{}\" for the horizontal axis, so it is left out", runs[i], x);
        continue;
      }
      line.points = points_of(ledger, runs[i], metric, x);
      if (options.smooth > 0) line.smooth = smoothed(line.points, options.smooth);
      chart.lines.push_back(std::move(line));
    }
  if (chart.lines.empty())
    throw usage_error("none of these runs has a metric {}; `runner metrics RUN` shows what a run has",
                      join_or(metrics));
  return chart;
}

/// Memory of a rank in bytes, predicted and measured.
BarChart memory_bars(const Ledger& ledger, const std::vector<std::string>& runs, const PlotOptions& options) {
  BarChart chart{.title = options.title.empty() ? "memory of a rank" : options.title,
                 .y_label = "B",
                 .names = {"predicted", "measured"}};
  const auto names = short_names(ledger, runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto run = ledger.show(runs[i]);
    BarGroup group{names[i], {}};
    for (const auto& kind : chart.names) {
      const auto value =
          run.at(kind).is_object() ? run.at(kind).value("memory_bytes_per_rank", nlohmann::json()) : nlohmann::json();
      group.values.push_back(value.is_number() ? value.get<double>() : std::nan(""));
    }
    chart.groups.push_back(std::move(group));
  }
  return chart;
}

/// The chart's bars in the largest unit that the longest one reaches.
BarChart in_binary_unit(BarChart chart) {
  double most = 0, unit = 1;
  for (const auto& group : chart.groups)
    for (const double value : group.values) most = std::max(most, std::isfinite(value) ? value : 0);
  for (const char* name : {"KiB", "MiB", "GiB", "TiB"}) {
    if (most < 1024 * unit) break;
    unit *= 1024;
    chart.y_label = name;
  }
  for (auto& group : chart.groups)
    for (double& value : group.values) value /= unit;
  return chart;
}

TerminalChart terminal_of(const PlotOptions& options) {
  constexpr int usual_columns = 80, usual_rows = 20;
  const char* columns = std::getenv("COLUMNS");  // of a terminal that is behind the pipe
  const int terminal = terminal_width(STDOUT_FILENO), width = terminal > 0 || !columns ? terminal : std::atoi(columns);
  return {.columns = options.width > 0 ? options.width
                     : width > 0       ? width
                                       : usual_columns,
          .rows = options.height > 0 ? options.height : usual_rows,
          .unicode = utf8_locale(),
          .colour = colours_wanted(STDOUT_FILENO)};
}

ImageSize image_size(const PlotOptions& options) {
  ImageSize size;
  if (options.width > 0) size.width = options.width;
  if (options.height > 0) size.height = options.height;
  return size;
}

nlohmann::json as_json(const Chart& chart) {
  auto lines = nlohmann::json::array();
  for (const auto& line : chart.lines) {
    auto x = nlohmann::json::array(), y = nlohmann::json::array();
    for (const auto& [place, value] : line.smooth.empty() ? line.points : line.smooth) {
      x.push_back(json_number(place));
      y.push_back(json_number(value));
    }
    lines.push_back({{"name", line.label}, {"x", x}, {"y", y}});
  }
  return {{"schema", 1}, {"x", chart.x_label}, {"y", chart.y_label}, {"curves", lines}};
}

nlohmann::json as_json(const BarChart& chart) {
  auto groups = nlohmann::json::array();
  for (const auto& group : chart.groups) {
    nlohmann::json one = {{"name", group.label}};
    for (size_t i = 0; i < chart.names.size(); ++i) one[chart.names[i]] = json_number(group.values[i]);
    groups.push_back(one);
  }
  return {{"schema", 1}, {"y", chart.y_label}, {"bars", groups}};
}

ExitCode plot(const PlotOptions& options) {
  if (!options.output.empty()) check_image_name(options.output);
  if (!(options.smooth >= 0 && options.smooth < 1))
    throw usage_error("--smooth {}: the weight is at least 0 and less than 1, for example 0.6", options.smooth);
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto runs = chosen_runs(ledger, options.runs);
  const auto show = [&](const auto& chart, const std::string& text) {
    if (options.output.empty())
      return options.json ? print_json(as_json(chart)) : static_cast<void>(std::fputs(text.c_str(), stdout));
    write_image(chart, options.output, image_size(options));
    log::info("wrote {}", options.output);
    if (options.json) print_json({{"schema", 1}, {"output", options.output}});
  };
  if (options.memory) {
    const auto chart = memory_bars(ledger, runs, options);
    show(in_binary_unit(chart),
         draw_bars(chart, terminal_of(options), [](double bytes) { return format_bytes(bytes); }));
  } else {
    const auto chart = curves(ledger, runs, options);
    if (chart.lines.size() > distinct_lines)
      log::info("note: {} curves share colours; fewer runs are easier to tell apart, for example with limit:{}",
                chart.lines.size(), distinct_lines);
    Chart titled = chart;
    if (titled.title.empty()) titled.title = titled.y_label;
    show(chart, draw_chart(titled, terminal_of(options)));
  }
  return ExitCode::done;
}

}  // namespace

Action setup_plot(CLI::App& app) {
  auto options = std::make_shared<PlotOptions>();
  add_runs_option(app, options->runs);
  app.add_option("--metric", options->metrics,
                 "The metric or reading of the machine to draw; may be given several times; default loss")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option(
         "--x", options->x,
         "What the horizontal axis counts: step, tokens, seconds, epoch, or any other metric; default step, and "
         "seconds for\nreadings of the machine")
      ->type_name("NAME");
  app.add_option("-o,--output", options->output, "Write this file instead, .svg or .png; needs gnuplot")
      ->type_name("FILE");
  app.add_option("--smooth", options->smooth, "Exponential moving average with this weight, as in TensorBoard")
      ->type_name("WEIGHT");
  app.add_flag("--log-y", options->log_y, "Logarithmic vertical axis");
  app.add_flag("--log-x", options->log_x, "Logarithmic horizontal axis");
  app.add_flag("--memory", options->memory,
               "Bars of the predicted and the measured memory of a rank, instead of curves");
  add_json_option(app, options->json);
  app.add_option("--title", options->title, "A title above the chart")->type_name("TEXT");
  app.add_option("--width", options->width,
                 "Characters, or pixels of a file; default the terminal's width, 1000 pixels")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--height", options->height, "Lines, or pixels of a file; default 20 lines, 600 pixels")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000));
  app.footer(
      "Examples:\n  runner plot last --metric loss --metric val_loss\n  runner plot tag:night --x tokens --smooth 0.6 "
      "-o loss.svg\n"
      "x marks a value that is not finite. In a file, the raw curve stays visible behind a smoothed one. NO_COLOR "
      "turns colours off.");
  return [options] { return plot(*options); };
}

}  // namespace runner
