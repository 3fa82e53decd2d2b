// `runner metrics`: prints a run's points as a readable table, or as CSV or JSON at full precision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/readings.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

struct MetricsOptions {
  std::vector<std::string> runs = {"last"};
  std::vector<std::string> names;  ///< empty = all
  bool json = false, csv = false;
  bool system = false;  ///< readings of the machine instead of metrics
  int64_t tail = 0;     ///< only the last `tail` steps; 0 = all
  int64_t every = 1;    ///< only multiples of this, and the last step
};

enum class Axis { step, seconds };

/// Where a point is: the step of a metric, or the seconds of a reading. The other one is 0.
struct Place {
  int64_t step = 0;
  double seconds = 0;
  auto operator<=>(const Place&) const = default;
};
using Points = std::vector<std::pair<Place, double>>;

std::string text_of(const Place& place, Axis axis) {
  return axis == Axis::step ? std::to_string(place.step) : fmt::format("{}", place.seconds);
}

/// The curves of a run: one for each name, empty if it has no such metric.
struct RunCurves {
  std::string id, name;
  std::vector<Points> curves;
};

/// Keeps the steps that --every and --tail select, the same in all curves. Readings are counted from 1.
void choose_steps(std::vector<Points>& curves, Axis axis, const MetricsOptions& options) {
  std::set<Place> steps;
  for (const auto& points : curves)
    for (const auto& point : points) steps.insert(point.first);
  if (steps.empty()) return;
  const Place last = *steps.rbegin();
  int64_t reading = 0;
  std::erase_if(steps, [&](const Place& place) {
    ++reading;
    return (axis == Axis::step ? place.step : reading) % options.every != 0 && place != last;
  });
  while (options.tail > 0 && static_cast<int64_t>(steps.size()) > options.tail) steps.erase(steps.begin());
  for (auto& points : curves) std::erase_if(points, [&](const auto& point) { return !steps.contains(point.first); });
}

nlohmann::json json_points(const Points& points, Axis axis) {
  auto list = nlohmann::json::array();
  for (const auto& [place, value] : points)
    list.push_back(
        {axis == Axis::step ? nlohmann::json(place.step) : nlohmann::json(place.seconds), json_number(value)});
  return list;
}

/// The shortest text that converts back to the same number.
std::string exact(double value) { return fmt::format("{}", value); }

/// Six significant digits; integers with all digits.
std::string readable(double value) {
  constexpr double largest_count = 1e15;
  const bool count = std::abs(value) < largest_count && value == std::round(value);
  return count ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value);
}

/// A row for each step or reading: its place, then one cell for each curve, empty if the curve has no point there.
std::vector<std::vector<std::string>> join_by_step(const std::vector<Points>& curves, Axis axis,
                                                   std::string (*format)(double)) {
  std::map<Place, std::vector<std::string>> rows;
  for (size_t i = 0; i < curves.size(); ++i)
    for (const auto& [place, value] : curves[i]) {
      auto& cells = rows[place];
      cells.resize(curves.size() + 1);
      cells[0] = text_of(place, axis);
      cells[i + 1] = format(value);
    }
  std::vector<std::vector<std::string>> list;
  for (auto& [place, cells] : rows) list.push_back(std::move(cells));
  return list;
}

const char* title(Axis axis) { return axis == Axis::step ? "step" : "seconds"; }

/// Several runs have the columns `run` (id) and `name` in front of `step`.
void print_csv(const std::vector<std::string>& names, const std::vector<RunCurves>& runs, Axis axis) {
  const bool several = runs.size() > 1;
  std::string out = fmt::format("{}{}", several ? "run,name," : "", title(axis));
  for (const auto& name : names) out += "," + csv_cell(name);
  for (const auto& run : runs)
    for (const auto& row : join_by_step(run.curves, axis, exact))
      out += fmt::format("\n{}{}", several ? run.id + "," + csv_cell(run.name) + "," : "", fmt::join(row, ","));
  std::puts(out.c_str());
}

void print_table(const std::vector<std::string>& names, const std::vector<RunCurves>& runs, Axis axis) {
  const bool several = runs.size() > 1;
  std::vector<Column> columns = {{title(axis), true}};
  if (several) columns = {{"run"}, {"name"}, {title(axis), true}};
  for (const auto& name : names) columns.push_back({name, true});
  std::vector<std::vector<std::string>> rows;
  for (const auto& run : runs)
    for (auto& row : join_by_step(run.curves, axis, readable)) {
      if (several) row.insert(row.begin(), {run.id, run.name});
      rows.push_back(std::move(row));
    }
  std::fputs(format_table(columns, rows).c_str(), stdout);
}

nlohmann::json json_metrics(const std::vector<std::string>& names, const std::vector<Points>& curves, Axis axis) {
  auto metrics = nlohmann::json::object();
  for (size_t i = 0; i < names.size(); ++i) metrics[names[i]] = json_points(curves[i], axis);
  return metrics;
}

Points points_of(const Ledger& ledger, const std::string& run, const std::string& name, Axis axis) {
  Points points;
  if (axis == Axis::seconds)
    for (const auto& [seconds, value] : ledger.system_over_seconds(run, name))
      points.push_back({{.seconds = seconds}, value});
  else
    for (const auto& [step, value] : ledger.points(run, name)) points.push_back({{.step = step}, value});
  return points;
}

/// {NAME: [[seconds, value], ...]} of all readings of a run.
nlohmann::json json_system(const Ledger& ledger, const std::string& run) {
  auto system = nlohmann::json::object();
  for (const auto& name : ledger.system_names(run))
    system[name] = json_points(points_of(ledger, run, name, Axis::seconds), Axis::seconds);
  return system;
}

void print_points_as_json(const Ledger& ledger, const std::vector<std::string>& names,
                          const std::vector<RunCurves>& runs, Axis axis, const MetricsOptions& options) {
  const char* kind = axis == Axis::step ? "metrics" : "system";
  const auto curves_of = [&](const RunCurves& run) {
    nlohmann::json out = {{"run", run.id}, {kind, json_metrics(names, run.curves, axis)}};
    if (!options.names.empty() || axis == Axis::seconds) return out;
    if (auto system = json_system(ledger, run.id); !system.empty()) out["system"] = std::move(system);
    return out;
  };
  nlohmann::json out;
  if (runs.size() > 1) {
    out["runs"] = nlohmann::json::array();
    for (const auto& run : runs) {
      out["runs"].push_back(curves_of(run));
      out["runs"].back()["name"] = run.name;
    }
  } else if (options.names.size() == 1) {
    out = {{"run", runs[0].id}, {"name", names[0]}, {"points", json_points(runs[0].curves[0], axis)}};
    if (axis == Axis::seconds) out["x"] = title(axis);
  } else {
    out = curves_of(runs[0]);
  }
  out["schema"] = 1;
  print_json(out);
}

/// The named metrics or readings, or all that one of the runs has.
std::vector<std::string> wanted_names(const Ledger& ledger, const std::vector<std::string>& ids, Axis axis,
                                      const MetricsOptions& options) {
  if (!options.names.empty()) return options.names;
  std::set<std::string> names;
  for (const auto& id : ids)
    for (const auto& name : axis == Axis::step ? ledger.metric_names(id) : ledger.system_names(id)) names.insert(name);
  std::vector<std::string> sorted(names.begin(), names.end());
  sort_metrics(sorted);
  return sorted;
}

std::vector<RunCurves> read_curves(const Ledger& ledger, const std::vector<std::string>& ids,
                                   const std::vector<std::string>& names, Axis axis, const MetricsOptions& options) {
  std::vector<RunCurves> runs;
  for (const auto& id : ids) {
    auto& run = runs.emplace_back(RunCurves{id, ledger.row(id).name, {}});
    const auto known = axis == Axis::step ? ledger.metric_names(id) : ledger.system_names(id);
    for (const auto& name : names) {
      const bool lacks = ids.size() > 1 && std::ranges::find(known, name) == known.end();
      if (lacks && !options.names.empty())
        log::warning("run {} has no {} \"{}\"", id, axis == Axis::step ? "metric" : "reading", name);
      run.curves.push_back(lacks ? Points() : points_of(ledger, id, name, axis));
    }
    choose_steps(run.curves, axis, options);
  }
  const auto is_empty = [](const RunCurves& run) { return std::ranges::all_of(run.curves, &Points::empty); };
  if (!options.names.empty() && std::ranges::all_of(runs, is_empty)) {
    const auto there = wanted_names(ledger, ids, axis, {});
    throw usage_error("none of these runs has a metric {}; {}", join_or(names),
                      there.empty() ? "they have no metrics yet"
                                    : fmt::format("they have {} (--name takes one name, and may be given several times)",
                                                  join(there, ", ")));
  }
  return runs;
}

ExitCode print(const MetricsOptions& options) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto ids = chosen_runs(ledger, options.runs);
  const Axis axis = options.system || are_readings(ledger, ids, options.names) ? Axis::seconds : Axis::step;
  const auto names = wanted_names(ledger, ids, axis, options);
  if (names.empty() && !options.json)
    throw usage_error("run {} has no {} yet", ids[0], axis == Axis::step ? "metrics" : "readings of the machine");
  const auto runs = read_curves(ledger, ids, names, axis, options);
  if (options.json)
    print_points_as_json(ledger, names, runs, axis, options);
  else if (options.csv)
    print_csv(names, runs, axis);
  else
    print_table(names, runs, axis);
  return ExitCode::done;
}

}  // namespace

Action setup_metrics(CLI::App& app) {
  auto options = std::make_shared<MetricsOptions>();
  add_runs_option(app, options->runs);
  app.add_option("--name,--metric", options->names, "Only this metric or reading; may be given several times")
      ->allow_extra_args(false);
  app.add_flag("--system", options->system,
               "Readings of the machine instead of metrics: CPU, memory, disk, network, GPUs, over seconds");
  app.add_option("--tail", options->tail, "Only the last N steps")->type_name("N")->check(at_least_one());
  app.add_option("--every", options->every, "Only every N-th step, and the last")
      ->type_name("N")
      ->check(at_least_one());
  auto* json = add_json_option(app, options->json);
  app.add_flag("--csv", options->csv, "Comma-separated, a column for each metric; like --json with all digits")
      ->excludes(json);
  app.footer(
      "--json prints {\"points\": [[step, value], ...]} for one name, otherwise {\"metrics\": {NAME: points}}; for "
      "several runs\n"
      "{\"runs\": [{\"run\", \"name\", \"metrics\"}]}. Without names, the readings of the machine follow as "
      "{\"system\": "
      "{NAME: [[seconds, value], ...]}}.\nThe CSV of several runs has one row for each run and step, and "
      "the columns run, name,\n"
      "step and one for each metric, as pandas' groupby and seaborn's hue expect it.");
  return [options] { return print(*options); };
}

}  // namespace runner
