// `runner compare`: runs side by side, by the keys in which they differ.
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>

#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/run_id.hpp"
#include "runner/report/comparison.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/run_differences.hpp"
#include "runner/report/table.hpp"
#include "runner/report/terminal.hpp"
#include "runner/report/terminal_chart.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr int sparkline_columns = 20;
constexpr const char* all_keys = "all";
constexpr std::array<std::string_view, 8> keys_beside_training = {"run.tags",
                                                                  "run.notes",
                                                                  "run.group",
                                                                  "run.profiler",
                                                                  "logging.",
                                                                  "health.",
                                                                  "hooks.instruction_limit",
                                                                  "train.log_every_n_steps"};
constexpr int columns_of_others = 70, columns_of_key = 12;  ///< of a table in a terminal
constexpr size_t wide_keys = 12;                            ///< where the width is not known

struct CompareOptions {
  std::vector<std::string> runs = {"limit:20"};
  std::string best, sort;
  std::vector<std::string> metrics, group_by, keys;
  bool json = false, csv = false;
};

/// The runs, keys and metrics that are compared. The first metric decides what is best.
struct Comparison {
  std::vector<ComparedRun> runs;
  std::vector<std::string> keys;
  std::vector<ComparedMetric> metrics;
};

std::vector<ComparedMetric> wanted_metrics(const Ledger& ledger, const std::vector<std::string>& ids,
                                           const CompareOptions& options) {
  std::vector<ComparedMetric> metrics;
  const auto add = [&](const std::string& name, bool best) { metrics.push_back({name, best, higher_is_better(name)}); };
  if (!options.best.empty()) add(options.best, true);
  for (const auto& name : options.metrics) add(name, false);
  if (metrics.empty()) add(ledger.row(ids.front()).metric, false);
  for (const auto& metric : metrics) {
    std::vector<std::string> known;
    for (const auto& id : ids)
      for (const auto& name : ledger.metric_names(id)) known.push_back(name);
    if (known.empty() || std::ranges::find(known, metric.name) != known.end()) continue;
    const auto near = nearest(metric.name, known);
    throw usage_error("none of these runs has a metric \"{}\"{}", metric.name,
                      near ? fmt::format(": did you mean \"{}\"?", *near) : "");
  }
  return metrics;
}

ComparedRun read_run(const Ledger& ledger, const std::string& id, const std::vector<ComparedMetric>& metrics) {
  const auto row = ledger.row(id);
  ComparedRun run{.id = id, .name = row.name, .status = row.status, .steps = row.steps, .config = json::object()};
  for (const auto& [key, value] : flattened(ledger.config(id))) run.config[key] = value;
  run.origins = ledger.origins(id);
  run.config["strategy"] = row.strategy;
  if (!row.group.empty()) run.config["group"] = row.group;
  run.config.erase("run.name");
  run.config.erase("run.group");  // which `runner group` may have changed
  run.config.erase("strategy.name");
  const auto summaries = ledger.summaries(id);
  for (const auto& metric : metrics)
    if (const auto found = summaries.find(metric.name); found != summaries.end())
      run.values[metric.title()] = metric.best ? found->second.best : found->second.last;
  if (summaries.contains(metrics.front().name))
    for (const auto& [step, value] : ledger.points(id, metrics.front().name))
      run.curve.emplace_back(static_cast<double>(step), value);
  return run;
}

void sort_runs(Comparison& comparison, const std::string& sort) {
  if (sort.empty()) return;
  const bool descending = sort[0] == '-';
  const std::string text = sort.substr(descending ? 1 : 0);
  for (auto metric : comparison.metrics)
    if (metric.name == text || metric.title() == text) {
      metric.higher = descending;
      return sort_by_metric(comparison.runs, metric);
    }
  sort_by_key(comparison.runs, meant_key(text, comparison.runs), descending);
}

Comparison read_comparison(const Ledger& ledger, const CompareOptions& options) {
  std::vector<std::string> ids;
  if (options.runs != CompareOptions().runs)
    ids = chosen_runs(ledger, options.runs);
  else
    for (const auto& run : ledger.runs(filter_of(options.runs))) ids.push_back(run.id);
  if (ids.empty()) throw usage_error("there are no runs to compare; `runner ls` lists all");
  Comparison comparison;
  comparison.metrics = wanted_metrics(ledger, ids, options);
  for (const auto& id : ids) {
    comparison.runs.push_back(read_run(ledger, id, comparison.metrics));
    if (ledger.attempts(id).size() > 1)
      for (const auto& attempt : changed_settings(ledger.show(id)))
        log::info("note: {}: {}", comparison.runs.back().name, to_text(attempt));
  }
  if (options.sort.empty() && !options.best.empty()) sort_by_metric(comparison.runs, comparison.metrics.front());
  sort_runs(comparison, options.sort);
  const auto& named = options.group_by.empty() ? options.keys : options.group_by;
  for (const auto& text : named)
    for (const auto& part : split(text, ','))
      if (part != all_keys) comparison.keys.push_back(meant_key(part, comparison.runs));
  if (comparison.keys.empty()) comparison.keys = differing_keys(comparison.runs);
  return comparison;
}

/// Whether only some of the runs have the key, and all of them at its default, as the options of one of several strategies.
bool is_default_of_some(const std::string& key, const std::vector<ComparedRun>& runs) {
  const auto has = [&](const ComparedRun& run) { return !run.config.value(key, json()).is_null(); };
  return !std::ranges::all_of(runs, has) && std::ranges::all_of(runs, [&](const ComparedRun& run) {
    return !has(run) || (run.origins.is_object() && run.origins.value(key, json()) == "default");
  });
}

/// Leaves out keys that cannot change a curve, keys that one strategy has at its default, and keys for which the terminal has no columns
/// left.
void shorten_keys(Comparison& comparison) {
  const auto all = comparison.keys.size();
  sort_by_interest(comparison.keys, comparison.runs);
  std::erase_if(comparison.keys, [&](const std::string& key) {
    if (is_default_of_some(key, comparison.runs)) return true;
    return std::ranges::any_of(keys_beside_training, [&](std::string_view begin) { return key.starts_with(begin); });
  });
  const int width = terminal_width(STDOUT_FILENO);
  const size_t fit = width == 0 ? wide_keys : std::max(3, (width - columns_of_others) / columns_of_key);
  if (comparison.keys.size() > fit) comparison.keys.resize(fit);
  if (const auto left_out = all - comparison.keys.size(); left_out > 0)
    log::info("note: the runs differ in {} more, which --keys all shows; --keys A,B chooses them",
              counted(static_cast<int64_t>(left_out), "key"));
}

std::string six_digits(double value) { return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value); }
std::string all_digits(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }
std::string key_cell(const json& value) { return value.is_null() ? "-" : quantity("", value); }
std::string run_label(const ComparedRun& run) { return run.name + " " + id_end(run.id); }

using Rows = std::vector<std::vector<std::string>>;

/// A table with a row for each run. `readable`: numbers are shortened, the best values are marked, and there are sparklines.
std::pair<std::vector<Column>, Rows> run_table(const Comparison& comparison, bool readable) {
  std::vector<Column> columns = {{readable ? "RUN" : "run"}};
  if (!readable) columns.push_back({"name"});
  columns.push_back({readable ? "STATUS" : "status"});
  for (const auto& title : readable ? key_titles(comparison.keys) : comparison.keys)
    columns.push_back({title, true, true});
  columns.push_back({readable ? "STEPS" : "steps", true});
  for (const auto& metric : comparison.metrics) columns.push_back({metric.title(), true});
  if (readable) columns.push_back({comparison.metrics.front().name + " by step"});
  Rows rows;
  for (size_t i = 0; i < comparison.runs.size(); ++i) {
    const auto& run = comparison.runs[i];
    auto& row = rows.emplace_back();
    row.push_back(readable ? run_label(run) : run.id);
    if (!readable) row.push_back(run.name);
    row.push_back(run.status);
    for (const auto& key : comparison.keys) {
      const auto value = run.config.value(key, json());
      row.push_back(readable ? key_cell(value) : value.is_null() ? "" : plain(value));
    }
    row.push_back(std::to_string(run.steps));
    for (const auto& metric : comparison.metrics) {
      const auto found = run.values.find(metric.title());
      const bool best = readable && comparison.runs.size() > 1 && best_run(comparison.runs, metric) == i;
      const std::string none = readable ? "-  " : "";
      row.push_back(found == run.values.end() ? none
                    : readable                ? six_digits(found->second) + (best ? " *" : "  ")
                                              : all_digits(found->second));
    }
    if (readable) row.push_back(sparkline(run.curve, sparkline_columns, utf8_locale()));
  }
  return {columns, rows};
}

/// A table with a row for each group.
std::pair<std::vector<Column>, Rows> group_table(const Comparison& comparison, bool readable) {
  std::vector<Column> columns;
  for (const auto& title : readable ? key_titles(comparison.keys) : comparison.keys)
    columns.push_back({title, true, true});
  columns.push_back({readable ? "RUNS" : "runs", true});
  for (const auto& metric : comparison.metrics)
    for (const char* what : {"mean", "std", "best"})
      columns.push_back({fmt::format("{}{} {}", metric.title(), readable ? ":" : "", what), true});
  if (readable) columns.push_back({comparison.metrics.front().name + " by step"});
  Rows rows;
  const auto groups = grouped(comparison.runs, comparison.keys);
  for (const auto& group : groups) {
    auto& row = rows.emplace_back();
    for (const auto& value : group.values)
      row.push_back(readable ? key_cell(value) : value.is_null() ? "" : plain(value));
    row.push_back(std::to_string(group.runs.size()));
    for (const auto& metric : comparison.metrics) {
      const auto spread = spread_of(comparison.runs, group, metric);
      const auto best = best_run(comparison.runs, metric);
      const bool has_best =
          readable && groups.size() > 1 && best && std::ranges::find(group.runs, *best) != group.runs.end();
      const auto cell = [&](double value) {
        return spread.count == 0 ? (readable ? "-" : "") : readable ? six_digits(value) : all_digits(value);
      };
      row.push_back(cell(spread.mean));
      row.push_back(spread.count < 2 ? (readable ? "-" : "")
                                     : (readable ? (utf8_locale() ? "± " : "+- ") : "") + cell(spread.deviation));
      row.push_back(cell(spread.best) + (has_best ? " *" : readable ? "  " : ""));
    }
    if (readable) row.push_back(sparkline(mean_curve(comparison.runs, group), sparkline_columns, utf8_locale()));
  }
  return {columns, rows};
}

json runs_json(const Comparison& comparison) {
  json list = json::array();
  for (const auto& run : comparison.runs) {
    json values = json::object(), metrics = json::object();
    for (const auto& key : comparison.keys) values[key] = run.config.value(key, json());
    for (const auto& [title, value] : run.values) metrics[title] = json_number(value);
    list.push_back({{"id", run.id},
                    {"name", run.name},
                    {"status", run.status},
                    {"steps", run.steps},
                    {"config", values},
                    {"metrics", metrics}});
  }
  return list;
}

json groups_json(const Comparison& comparison) {
  json list = json::array();
  for (const auto& group : grouped(comparison.runs, comparison.keys)) {
    json entry = {{"runs", json::array()}, {"config", json::object()}, {"metrics", json::object()}};
    for (size_t i = 0; i < comparison.keys.size(); ++i) entry["config"][comparison.keys[i]] = group.values[i];
    for (const size_t i : group.runs) entry["runs"].push_back(comparison.runs[i].id);
    for (const auto& metric : comparison.metrics) {
      const auto spread = spread_of(comparison.runs, group, metric);
      const auto or_null = [](double value) { return std::isfinite(value) ? json(value) : json(); };
      entry["metrics"][metric.title()] = {{"count", spread.count},
                                          {"mean", or_null(spread.mean)},
                                          {"std", or_null(spread.deviation)},
                                          {"best", or_null(spread.best)}};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

void print_csv(const std::vector<Column>& columns, const Rows& rows) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::vector<std::string> quoted;
    for (const auto& cell : cells) quoted.push_back(csv_cell(cell));
    std::puts(join(quoted, ",").c_str());
  };
  std::vector<std::string> titles;
  for (const auto& column : columns) titles.push_back(column.title);
  line(titles);
  for (const auto& row : rows) line(row);
}

ExitCode compare(const CompareOptions& options) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  auto comparison = read_comparison(ledger, options);
  const bool groups = !options.group_by.empty();
  if (!groups && options.keys.empty() && !options.json && !options.csv) shorten_keys(comparison);
  if (options.json) {
    json out = {{"schema", 1},
                {"keys", comparison.keys},
                {groups ? "groups" : "runs", groups ? groups_json(comparison) : runs_json(comparison)}};
    if (const auto best = best_run(comparison.runs, comparison.metrics.front()))
      out["best"] = {{"id", comparison.runs[*best].id}, {"metric", comparison.metrics.front().title()}};
    print_json(out);
    return ExitCode::done;
  }
  const auto [columns, rows] = groups ? group_table(comparison, !options.csv) : run_table(comparison, !options.csv);
  options.csv ? print_csv(columns, rows) : static_cast<void>(std::fputs(format_table(columns, rows).c_str(), stdout));
  return ExitCode::done;
}

}  // namespace

Action setup_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  add_runs_option(app, options->runs);
  app.add_option("--best", options->best, "Compare the best value of this metric, best runs first")
      ->type_name("METRIC");
  app.add_option("--metric", options->metrics, "Compare the last value of this metric; may be given several times")
      ->type_name("METRIC")
      ->allow_extra_args(false);
  app.add_option("--group-by", options->group_by, "A row for all runs with the same value of this key, e.g. lr")
      ->type_name("KEY")
      ->allow_extra_args(false);
  app.add_option("--keys", options->keys,
                 "The recipe keys to show, or all in which the runs differ; default those that fit")
      ->type_name("A,B,... | all")
      ->allow_extra_args(false);
  app.add_option("--sort", options->sort, "Sort by a key or a metric; -KEY: largest first")->type_name("KEY");
  auto* json = add_json_option(app, options->json);
  app.add_flag("--csv", options->csv, "Comma-separated, with all digits and without sparklines")->excludes(json);
  app.footer(
      "Shows only the keys in which the runs differ. * marks the best value. Groups show the mean, the standard "
      "deviation of the sample\n"
      "and the best value. Example: runner compare sweep:last --best val_loss --group-by lr");
  return [options] { return compare(*options); };
}

}  // namespace runner
