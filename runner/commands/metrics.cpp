// `runner metrics`: a run's points as a table, CSV or JSON, at full precision.
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "runner/commands/command.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

struct MetricsOptions {
  std::string run = "last";
  std::vector<std::string> names;  ///< none = all
  bool json = false, csv = false;
};

using Points = std::vector<std::pair<int64_t, double>>;

nlohmann::json json_points(const Points& points) {
  auto list = nlohmann::json::array();
  for (const auto& [step, value] : points) list.push_back({step, json_number(value)});
  return list;
}

/// The curves side by side: step -> one cell a curve, empty where it has no point. The shortest digits that read back
/// exactly.
std::vector<std::vector<std::string>> join_by_step(const std::vector<Points>& curves) {
  std::map<int64_t, std::vector<std::string>> rows;
  for (size_t i = 0; i < curves.size(); ++i)
    for (const auto& [step, value] : curves[i]) {
      auto& cells = rows[step];
      cells.resize(curves.size() + 1);
      cells[0] = std::to_string(step);
      cells[i + 1] = fmt::format("{}", value);
    }
  std::vector<std::vector<std::string>> list;
  for (auto& [step, cells] : rows) list.push_back(std::move(cells));
  return list;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void print_csv(const std::vector<std::string>& names, const std::vector<Points>& curves) {
  std::string out = "step";
  for (const auto& name : names) out += "," + csv_cell(name);
  for (const auto& row : join_by_step(curves)) out += fmt::format("\n{}", fmt::join(row, ","));
  std::puts(out.c_str());
}

void print_table(const std::vector<std::string>& names, const std::vector<Points>& curves) {
  std::vector<Column> columns = {{"step", true}};
  for (const auto& name : names) columns.push_back({name, true});
  std::fputs(format_table(columns, join_by_step(curves)).c_str(), stdout);
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
  const auto names = options.names.empty() ? ledger.metric_names(run) : options.names;
  if (names.empty() && !options.json) throw usage_error("run {} has no metrics yet", run);
  std::vector<Points> curves;
  for (const auto& name : names) curves.push_back(ledger.points(run, name));
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
  app.add_option("run", options->run, "A run: id, part of one, name, or last")->capture_default_str();
  app.add_option("--name", options->names, "Only this metric; may be given several times")->allow_extra_args(false);
  auto* json = app.add_flag(
      "--json", options->json,
      "One JSON line: {\"points\": [[step, value], ...]} for one name, else {\"metrics\": {NAME: points}}");
  app.add_flag("--csv", options->csv, "Comma-separated, a column for each metric")->excludes(json);
  return [options] { return print(*options); };
}

}  // namespace runner
