// `runner metrics`: prints a run's points as a readable table, or as CSV or JSON at full precision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "runner/base/metric_names.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/option_checks.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/csv.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

struct MetricsOptions {
  std::string run = "last";
  std::vector<std::string> names;  ///< empty = all
  bool json = false, csv = false;
  int64_t tail = 0;   ///< only the last `tail` steps; 0 = all
  int64_t every = 1;  ///< only multiples of this, and the last step
};

using Points = std::vector<std::pair<int64_t, double>>;

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

void print_csv(const std::vector<std::string>& names, const std::vector<Points>& curves) {
  std::string out = "step";
  for (const auto& name : names) out += "," + csv_cell(name);
  for (const auto& row : join_by_step(curves, exact)) out += fmt::format("\n{}", fmt::join(row, ","));
  std::puts(out.c_str());
}

void print_table(const std::vector<std::string>& names, const std::vector<Points>& curves) {
  std::vector<Column> columns = {{"step", true}};
  for (const auto& name : names) columns.push_back({name, true});
  std::fputs(format_table(columns, join_by_step(curves, readable)).c_str(), stdout);
}

void print_json(const std::string& run, const std::vector<std::string>& names, const std::vector<Points>& curves,
                bool one) {
  nlohmann::json out = {{"schema", 1}, {"run", run}};
  if (one) {
    out["name"] = names[0];
    out["points"] = json_points(curves[0]);
  } else {
    out["metrics"] = nlohmann::json::object();
    for (size_t i = 0; i < names.size(); ++i) out["metrics"][names[i]] = json_points(curves[i]);
  }
  std::puts(out.dump().c_str());
}

ExitCode print(const MetricsOptions& options) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const std::string run = ledger.find_run(options.run);
  auto names = options.names;
  if (names.empty()) {
    names = ledger.metric_names(run);
    sort_metrics(names);
  }
  if (names.empty() && !options.json) throw usage_error("run {} has no metrics yet", run);
  std::vector<Points> curves;
  for (const auto& name : names) curves.push_back(ledger.points(run, name));
  choose_steps(curves, options);
  if (options.json)
    print_json(run, names, curves, options.names.size() == 1);
  else if (options.csv)
    print_csv(names, curves);
  else
    print_table(names, curves);
  return ExitCode::done;
}

}  // namespace

Action setup_metrics(CLI::App& app) {
  auto options = std::make_shared<MetricsOptions>();
  add_run_option(app, options->run);
  app.add_option("--name", options->names, "Only this metric; may be given several times")->allow_extra_args(false);
  app.add_option("--tail", options->tail, "Only the last N steps")->type_name("N")->check(at_least_one());
  app.add_option("--every", options->every, "Only every N-th step, and the last")
      ->type_name("N")
      ->check(at_least_one());
  auto* json = add_json_option(app, options->json);
  app.add_flag("--csv", options->csv, "Comma-separated, a column for each metric; like --json with all digits")
      ->excludes(json);
  app.footer("--json prints {\"points\": [[step, value], ...]} for one name, otherwise {\"metrics\": {NAME: points}}.");
  return [options] { return print(*options); };
}

}  // namespace runner
