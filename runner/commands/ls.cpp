// `runner ls`: lists the runs of the ledger, newest last.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/run_id.hpp"
#include "runner/ledger/run_kinds.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/table.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

struct LsOptions {
  bool json = false, csv = false, all = false;
  std::vector<std::string> words;
  std::string columns;
  std::string status;
  std::vector<std::string> tags;
  size_t newest = 0;  ///< 0 = all
  std::string sort;
};

void check_status(const std::string& status) {
  const auto& all = run_statuses();
  if (status.empty() || std::find(all.begin(), all.end(), status) != all.end()) return;
  const auto near = nearest(status, all);
  throw usage_error("--status {}: there is no such status{}; it is one of {}", status,
                    near ? fmt::format(", did you mean \"{}\"?", *near) : "", join_or(all));
}

/// A term whose value is taken as it is.
RunTerm exact_term(const std::string& field, const std::string& value) {
  return {.operand = {.name = field}, .values = {value}, .places = {{}}};
}

/// The runs of verbs that only read a model.
RunTerm term_of_reading_verbs() {
  RunTerm term{.operand = {.name = "strategy"}};
  for (const auto& verb : reading_verbs) {
    term.values.emplace_back(verb.name);
    term.places.emplace_back();
  }
  return term;
}

/// The filter of the words and of the older options.
RunFilter whole_filter(const LsOptions& options) {
  check_status(options.status);
  RunFilter filter = filter_of(options.words);
  if (!options.status.empty()) filter.terms.push_back(exact_term("status", options.status));
  for (const auto& tag : options.tags) filter.terms.push_back(exact_term("tag", tag));
  if (options.newest > 0) filter.newest = options.newest;
  if (!options.sort.empty()) {
    const RunFilter sorted = parse_filter("sort:" + options.sort);
    if (filter.order.empty()) filter.text = sorted.text;  // which an error shows
    filter.order.insert(filter.order.end(), sorted.order.begin(), sorted.order.end());
  }
  return filter;
}

std::string metric_cell(const RunRow& run) {
  return run.metric_value ? run.metric + " " + metric_text(*run.metric_value) : "-";
}

/// The strategy as `ls` names it: of a user's Lua file, the name without its folder.
std::string strategy_cell(const RunRow& run) {
  const auto folder = run.strategy.rfind('/');
  return run.strategy.starts_with("lua:") && folder != std::string::npos ? "lua:" + run.strategy.substr(folder + 1)
                                                                         : run.strategy;
}

constexpr int why_width = 80;  // in a terminal; `runner show` prints all of it

/// The words of a text, with only the last part of each long path: a table has no room for the rest, and the cause stands behind it.
std::string with_short_paths(const std::string& text) {
  constexpr size_t long_path = 24;
  auto words = split(text, ' ');
  for (auto& word : words) {
    if (!word.starts_with('/') || word.size() <= long_path) continue;
    if (const auto last = word.rfind('/', word.size() - 2); last > 0) word = "..." + word.substr(last);
  }
  return join(words, " ");
}

/// `imported`: as imported_kinds().
std::string why_cell(const RunRow& run, const std::map<std::string, std::string>& imported, bool in_terminal) {
  const std::string why = in_terminal ? cut_to_width(with_short_paths(run.why), why_width) : run.why;
  std::error_code error;
  if (fs::exists(run.folder, error)) return why;
  const auto from = imported.find(run.id);
  const std::string folder = from != imported.end() ? "imported from " + from->second : "its folder is missing";
  return why.empty() ? folder : why + "; " + folder;
}

/// The usual table. In a terminal of less than 110 characters it has the short ids, and no column of equal strategies; in one of less than
/// 80, only what tells runs apart.
std::string table(const std::vector<RunRow>& runs) {
  const double now = wall_seconds();
  std::vector<std::string> whys;
  const auto imported = imported_kinds(ledger_home());
  const int width = terminal_width(STDOUT_FILENO);
  for (const auto& run : runs) whys.push_back(why_cell(run, imported, width > 0));
  const bool narrow = width > 0 && width<110, tiny = width> 0 && width < 80;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows(runs.size());
  const auto add = [&](const Column& column, const auto& cell_of) {
    columns.push_back(column);
    for (size_t i = 0; i < runs.size(); ++i) rows[i].push_back(cell_of(runs[i]));
  };
  const auto add_if_used = [&](const std::string& title, const auto& cell_of) {
    const auto used = [&](const RunRow& run) { return !cell_of(run).empty(); };
    if (std::ranges::any_of(runs, used)) add({.title = title, .may_shrink = true}, cell_of);
  };
  const bool one_strategy =
      std::ranges::all_of(runs, [&](const auto& run) { return run.strategy == runs[0].strategy; });
  add({"ID"}, [&](const RunRow& run) { return narrow ? id_end(run.id) : run.id; });
  add({.title = "NAME", .may_shrink = true}, [](const RunRow& run) { return run.name; });
  add({"STATUS"}, [](const RunRow& run) { return run.status; });
  if (!tiny && (!narrow || !one_strategy)) add({.title = "STRATEGY", .may_shrink = true}, strategy_cell);
  if (!tiny) add({"STARTED"}, [&](const RunRow& run) { return format_ago(run.started, now); });
  if (!tiny) add({"TOOK", true}, [&](const RunRow& run) { return format_duration(seconds_taken(run, now)); });
  add({"STEPS", true}, [](const RunRow& run) { return std::to_string(run.steps); });
  add({"METRIC", true}, metric_cell);
  if (!tiny) add_if_used("GROUP", [](const RunRow& run) { return run.group; });
  if (!tiny) add_if_used("TAGS", [](const RunRow& run) { return join(run.tags, ", "); });
  add_if_used("WHY", [&](const RunRow& run) { return whys[static_cast<size_t>(&run - runs.data())]; });
  return format_table(columns, rows);
}

/// Texts as they are, numbers with all digits, lists as "a, b", or as JSON if an element has a comma; empty if there is no value.
std::string exact_cell(const nlohmann::json& cell) {
  if (cell.is_null()) return "";
  if (cell.is_string()) return cell.get<std::string>();
  if (!cell.is_array()) return cell.dump();
  std::vector<std::string> words;
  for (const auto& element : cell) words.push_back(exact_cell(element));
  if (std::ranges::any_of(words, [](const auto& word) { return word.find(',') != std::string::npos; }))
    return cell.dump();
  return join(words, ", ");
}

/// A cell for people: times are relative to now, numbers have six digits.
std::string readable_cell(const RunOperand& column, const nlohmann::json& cell, double now) {
  const auto* field = column.of == RunOperand::Of::name ? find_run_field(column.name) : nullptr;
  if (cell.is_null()) return "-";
  if (field && field->kind == FieldKind::time) return format_ago(cell, now);
  if (field && field->kind == FieldKind::duration) return format_duration(cell);
  if (field && field->kind == FieldKind::flag) return cell == true ? "yes" : "no";
  if (cell.is_number_float()) return fmt::format("{:.6g}", cell.get<double>());
  return one_line(exact_cell(cell));
}

std::string table_of_columns(const std::vector<RunRow>& runs, const RunColumns& columns) {
  const double now = wall_seconds();
  std::vector<Column> titles;
  for (size_t i = 0; i < columns.list.size(); ++i) {
    const auto& column = columns.list[i];
    const bool numbers =
        std::any_of(runs.begin(), runs.end(), [&](const auto& run) { return run.cells[i].is_number(); });
    const bool field = column.of == RunOperand::Of::name && find_run_field(column.name);
    std::string title = column.text();
    if (field)
      std::transform(title.begin(), title.end(), title.begin(),
                     [](char c) { return static_cast<char>(std::toupper(c)); });
    titles.push_back({.title = title, .right = numbers, .may_shrink = !numbers && column.name != "id"});
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& run : runs) {
    auto& row = rows.emplace_back();
    for (size_t i = 0; i < columns.list.size(); ++i) row.push_back(readable_cell(columns.list[i], run.cells[i], now));
  }
  return format_table(titles, rows);
}

int64_t count_entries(const fs::path& folder) {
  std::error_code ignored;
  return std::distance(fs::directory_iterator(folder, ignored), fs::directory_iterator());
}

/// The text to print if the ledger in `home` has no runs.
std::string no_runs(const fs::path& home) {
  if (const auto folders = count_entries(home / "runs"); folders > 0)
    return fmt::format(
        "the ledger in {} has no runs, but {} has {} of earlier ones, with their recipes and checkpoints: continue "
        "with runner run FOLDER/recipe.toml --checkpoint FOLDER/checkpoints/step-...",
        home.string(), (home / "runs").string(), counted(folders, "folder"));
  return fmt::format("no runs in {} yet; start one with: runner run RECIPE.toml (runner init writes a recipe)",
                     home.string());
}

/// {runs, schema}. Each row is formatted by itself: one object of 10,000 rows takes twice the time.
void print_run_objects(const std::vector<RunRow>& runs, const RunColumns& columns) {
  std::string out;
  for (const auto& run : runs) {
    auto row = to_json(run);
    for (size_t i = 0; i < columns.list.size(); ++i) row["cells"][columns.list[i].text()] = run.cells[i];
    out += (out.empty() ? "" : ",") + json_text(row);
  }
  std::printf("{\"runs\":[%s],\"schema\":1}\n", out.c_str());
}

/// The columns of --csv without --columns.
constexpr const char* all_columns =
    "id,name,status,strategy,group,tag,started,ended,took,steps,monitor,metric,sweep,trial,failure,message,notes";

void print_csv(const std::vector<RunRow>& runs, const RunColumns& columns) {
  std::vector<std::string> cells;
  for (const auto& column : columns.list) cells.push_back(csv_cell(column.text()));
  std::string out = join(cells, ",");
  for (const auto& run : runs) {
    cells.clear();
    for (const auto& cell : run.cells) cells.push_back(csv_cell(exact_cell(cell)));
    out += "\n" + join(cells, ",");
  }
  std::puts(out.c_str());
}

void print_nothing(const Ledger& ledger, const std::string& home) {
  const auto all = ledger.runs();
  const auto in_trash = std::ranges::count(all, true, &RunRow::deleted);
  const std::string trash =
      in_trash > 0 ? fmt::format("; {} in the trash, which `runner ls deleted:yes` lists", counted(in_trash, "run"))
                   : "";
  if (all.empty())
    log::info("{}", no_runs(home));
  else if (std::ssize(all) == in_trash)
    log::info("no runs in {}{}", home, trash);
  else
    log::info("no run matches these filters ({} in {}{})", counted(std::ssize(all) - in_trash, "run"), home, trash);
}

ExitCode list(const LsOptions& options) {
  RunFilter filter = whole_filter(options);
  RunColumns columns;
  if (!options.columns.empty() || options.csv)
    columns = parse_columns(options.columns.empty() ? all_columns : options.columns);
  const std::string home = ledger_home();
  const Ledger ledger(home, Ledger::Mode::read);
  const RunTerm reads_models = term_of_reading_verbs();
  const bool hides = !options.all && !options.json && !options.csv && filter.terms.empty();
  RunFilter only_these;
  only_these.terms = {reads_models};
  const auto hidden = hides ? std::ssize(ledger.runs(only_these)) : 0;
  if (hides) filter.terms.push_back(reads_models), filter.terms.back().negated = true;
  const auto runs = ledger.runs(filter, columns);
  if (options.json)
    print_run_objects(runs, columns);
  else if (options.csv)
    print_csv(runs, columns);
  else if (runs.empty())
    print_nothing(ledger, home);
  else
    std::fputs((columns.list.empty() ? table(runs) : table_of_columns(runs, columns)).c_str(), stdout);
  if (hidden > 0)
    log::info("{} of evaluate, predict and embed not listed; --all or a filter lists them", counted(hidden, "run"));
  return ExitCode::done;
}

}  // namespace

Action setup_ls(CLI::App& app) {
  auto options = std::make_shared<LsOptions>();
  add_filter_option(app, options->words);
  app.add_option("--columns", options->columns,
                 "Columns: fields, recipe keys and metrics: name,status,lr,best(val_loss)")
      ->type_name("A,B,...");
  auto* json = add_json_option(app, options->json);
  app.add_flag("--all", options->all,
               "Also runs of evaluate, predict and embed, which a table without a filter leaves out");
  app.add_flag("--csv", options->csv, "Comma-separated, with all digits; times are Unix seconds")->excludes(json);
  app.add_option("--status", options->status, "As status:STATUS");
  app.add_option("--tag", options->tags, "As tag:TAG; given several times, runs with all of them")
      ->allow_extra_args(false);
  app.add_option("-n", options->newest,
                 "Only the newest N runs; with a filter's sort:, limit:N takes the first ones of that order")
      ->type_name("N")
      ->check(at_least_one());
  app.add_option("--sort", options->sort, "As sort:COLUMN; -COLUMN is descending; runs without a value come last")
      ->type_name("COLUMN");
  app.footer(filter_help() +
             "\nMETRIC is the last value of checkpoint.monitor (val_loss), or of the loss in runs without validation. "
             "Tables are cut to the width of a terminal; into a pipe or a file they go whole.");
  return [options] { return list(*options); };
}

}  // namespace runner
