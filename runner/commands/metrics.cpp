// `runner metrics`: prints a run's points as a readable table, or as CSV or JSON at full precision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/option_checks.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/base/csv.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

struct MetricsOptions {
  std::vector<std::string> runs = {"last"};
  std::vector<std::string> names;  ///< empty = all
  bool json = false, csv = false;
  int64_t tail = 0;   ///< only the last `tail` steps; 0 = all
  int64_t every = 1;  ///< only multiples of this, and the last step
};

using Points = std::vector<std::pair<int64_t, double>>;

/// The curves of a run: one for each name, empty if it has no such metric.
struct RunCurves {
  std::string id, name;
  std::vector<Points> curves;
};

/// Keeps the steps that --every and --tail select, the same in all curves.
void choose_steps(std::vector<Points>& curves, const MetricsOptions& options) {
  std::set<int64_t> steps;
  for (const auto& points : curves)
    for (const auto& point : points) steps.insert(point.first);
  if (steps.empty()) return;
  const int64_t last = *steps.rbegin();
  std::erase_if(steps, [&](int64_t step) { return step % options.every != 0 && step != last; });
  while (options.tail > 0 && static_cast<int64_t>(steps.size()) > options.tail) steps.erase(steps.begin());
  for (auto& points : curves) std::erase_if(points, [&](const auto& point) { return !steps.contains(point.first); });
}

nlohmann::json json_points(const Points& points) {
  auto list = nlohmann::json::array();
  for (const auto& [step, value] : points) list.push_back({step, json_number(value)});
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

/// One row for each step: the step, then one cell for each curve, empty if the curve has no point there.
std::vector<std::vector<std::string>> join_by_step(const std::vector<Points>& curves, std::string (*format)(double)) {
  std::map<int64_t, std::vector<std::string>> rows;
  for (size_t i = 0; i < curves.size(); ++i)
    for (const auto& [step, value] : curves[i]) {
      auto& cells = rows[step];
      cells.resize(curves.size() + 1);
      cells[0] = std::to_string(step);
      cells[i + 1] = format(value);
    }
  std::vector<std::vector<std::string>> list;
  for (auto& [step, cells] : rows) list.push_back(std::move(cells));
  return list;
}

/// Several runs have the columns `run` (id) and `name` in front of `step`.
void print_csv(const std::vector<std::string>& names, const std::vector<RunCurves>& runs) {
  const bool several = runs.size() > 1;
  std::string out = several ? "run,name,step" : "step";
  for (const auto& name : names) out += "," + csv_cell(name);
  for (const auto& run : runs)
    for (const auto& row : join_by_step(run.curves, exact))
      out += fmt::format("\n{}{}", several ? run.id + "," + csv_cell(run.name) + "," : "", fmt::join(row, ","));
  std::puts(out.c_str());
}

void print_table(const std::vector<std::string>& names, const std::vector<RunCurves>& runs) {
  const bool several = runs.size() > 1;
  std::vector<Column> columns = {{"step", true}};
  if (several) columns = {{"run"}, {"name"}, {"step", true}};
  for (const auto& name : names) columns.push_back({name, true});
  std::vector<std::vector<std::string>> rows;
  for (const auto& run : runs)
    for (auto& row : join_by_step(run.curves, readable)) {
      if (several) row.insert(row.begin(), {run.id, run.name});
      rows.push_back(std::move(row));
    }
  std::fputs(format_table(columns, rows).c_str(), stdout);
}

nlohmann::json json_metrics(const std::vector<std::string>& names, const std::vector<Points>& curves) {
  auto metrics = nlohmann::json::object();
  for (size_t i = 0; i < names.size(); ++i) metrics[names[i]] = json_points(curves[i]);
  return metrics;
}

void print_json(const std::vector<std::string>& names, const std::vector<RunCurves>& runs, bool one) {
  nlohmann::json out = {{"schema", 1}};
  if (runs.size() > 1) {
    out["runs"] = nlohmann::json::array();
    for (const auto& run : runs)
      out["runs"].push_back({{"run", run.id}, {"name", run.name}, {"metrics", json_metrics(names, run.curves)}});
  } else {
    out["run"] = runs[0].id;
    if (one) {
      out["name"] = names[0];
      out["points"] = json_points(runs[0].curves[0]);
    } else {
      out["metrics"] = json_metrics(names, runs[0].curves);
    }
  }
  std::puts(out.dump().c_str());
}

/// The named metrics, or all that one of the runs has.
std::vector<std::string> wanted_names(const Ledger& ledger, const std::vector<std::string>& ids,
                                      const MetricsOptions& options) {
  if (!options.names.empty()) return options.names;
  std::set<std::string> names;
  for (const auto& id : ids)
    for (const auto& name : ledger.metric_names(id)) names.insert(name);
  std::vector<std::string> sorted(names.begin(), names.end());
  sort_metrics(sorted);
  return sorted;
}

ExitCode print(const MetricsOptions& options) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto ids = chosen_runs(ledger, options.runs);
  const auto names = wanted_names(ledger, ids, options);
  if (names.empty() && !options.json) throw usage_error("run {} has no metrics yet", ids[0]);
  std::vector<RunCurves> runs;
  for (const auto& id : ids) {
    auto& run = runs.emplace_back(RunCurves{id, ledger.row(id).name, {}});
    const auto known = ledger.metric_names(id);
    for (const auto& name : names) {
      const bool lacks = ids.size() > 1 && std::ranges::find(known, name) == known.end();
      if (lacks && !options.names.empty()) log::warning("run {} has no metric \"{}\"", id, name);
      run.curves.push_back(lacks ? Points() : ledger.points(id, name));
    }
    choose_steps(run.curves, options);
  }
  if (options.json)
    print_json(names, runs, options.names.size() == 1);
  else if (options.csv)
    print_csv(names, runs);
  else
    print_table(names, runs);
  return ExitCode::done;
}

}  // namespace

Action setup_metrics(CLI::App& app) {
  auto options = std::make_shared<MetricsOptions>();
  add_runs_option(app, options->runs);
  app.add_option("--name", options->names, "Only this metric; may be given several times")->allow_extra_args(false);
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
      "{\"runs\": [{\"run\", \"name\", \"metrics\"}]}. The CSV of several runs has one row for each run and step, and "
      "the columns run, name,\n"
      "step and one for each metric, as pandas' groupby and seaborn's hue expect it.");
  return [options] { return print(*options); };
}

}  // namespace runner
