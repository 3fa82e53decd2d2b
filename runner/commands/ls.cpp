// `runner ls`: lists the runs of the ledger, newest last.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/relative_time.hpp"
#include "runner/report/table.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

struct LsOptions {
  bool json = false;
  std::string status;
  std::vector<std::string> tags;
  size_t newest = 0;  ///< 0 = all
  std::string sort = "started";
};

void check_status(const std::string& status) {
  static const std::vector<std::string> all = {"running",   "finished", "failed", "interrupted",
                                               "preempted", "pruned",   "lost"};
  if (status.empty() || std::find(all.begin(), all.end(), status) != all.end()) return;
  const auto near = nearest(status, all);
  throw usage_error("--status {}: there is no such status{}; it is one of {}", status,
                    near ? fmt::format(", did you mean \"{}\"?", *near) : "", join_or(all));
}

std::vector<RunRow> choose(std::vector<RunRow> runs, const LsOptions& options) {
  std::erase_if(runs, [&](const RunRow& run) {
    const auto has = [&](const std::string& tag) {
      return std::find(run.tags.begin(), run.tags.end(), tag) != run.tags.end();
    };
    return (!options.status.empty() && run.status != options.status) ||
           !std::all_of(options.tags.begin(), options.tags.end(), has);
  });
  if (options.newest > 0 && runs.size() > options.newest)
    runs.erase(runs.begin(), runs.end() - static_cast<ptrdiff_t>(options.newest));
  return runs;
}

/// Sorts runs by a column, smallest first; equal runs keep their order. Runs without a value of the metric come last.
void sort_by(const std::string& column, std::vector<RunRow>& runs) {
  const double now = wall_seconds();
  const auto metric = [](const RunRow& run) {
    const double value = run.metric_value.value_or(std::nan(""));
    return std::pair(std::isnan(value), std::isnan(value) ? 0 : value);
  };
  const auto by = [&](auto key) {
    std::stable_sort(runs.begin(), runs.end(), [&](const RunRow& a, const RunRow& b) { return key(a) < key(b); });
  };
  if (column == "name") by([](const RunRow& run) { return run.name; });
  if (column == "status") by([](const RunRow& run) { return run.status; });
  if (column == "strategy") by([](const RunRow& run) { return run.strategy; });
  if (column == "took") by([&](const RunRow& run) { return seconds_taken(run, now); });
  if (column == "steps") by([](const RunRow& run) { return run.steps; });
  if (column == "metric") by(metric);
}

std::string metric_cell(const RunRow& run) {
  return run.metric_value ? fmt::format("{} {:.4f}", run.metric, *run.metric_value) : "-";
}

constexpr int why_width = 80;  // `runner show` prints all of it

std::string why_cell(const RunRow& run) {
  const std::string why = cut_to_width(run.why, why_width);
  if (fs::exists(run.folder)) return why;
  return why.empty() ? "its folder was deleted" : why + "; its folder was deleted";
}

std::string table(const std::vector<RunRow>& runs) {
  const double now = wall_seconds();
  std::vector<std::string> whys;
  for (const auto& run : runs) whys.push_back(why_cell(run));
  const bool tagged = std::any_of(runs.begin(), runs.end(), [](const RunRow& run) { return !run.tags.empty(); });
  const bool explained = std::any_of(whys.begin(), whys.end(), [](const std::string& why) { return !why.empty(); });
  const Column name = {.title = "NAME", .may_shrink = true};
  std::vector<Column> columns = {{"ID"},      name,           {"STATUS"},      {"STRATEGY"},
                                 {"STARTED"}, {"TOOK", true}, {"STEPS", true}, {"METRIC", true}};
  if (tagged) columns.push_back({.title = "TAGS", .may_shrink = true});
  if (explained) columns.push_back({.title = "WHY", .may_shrink = true});
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunRow& run = runs[i];
    auto& row = rows.emplace_back();
    row = {run.id,
           run.name,
           run.status,
           run.strategy,
           format_ago(run.started, now),
           format_duration(seconds_taken(run, now)),
           std::to_string(run.steps),
           metric_cell(run)};
    if (tagged) row.push_back(join(run.tags, ", "));
    if (explained) row.push_back(whys[i]);
  }
  return format_table(columns, rows);
}

int64_t count_entries(const fs::path& folder) {
  std::error_code ignored;
  return std::distance(fs::directory_iterator(folder, ignored), fs::directory_iterator());
}

/// What to print if the ledger in `home` has no runs.
std::string no_runs(const fs::path& home) {
  if (const auto folders = count_entries(home / "runs"); folders > 0)
    return fmt::format(
        "the ledger in {} has no runs, but {} has {} of earlier ones, with their recipes and checkpoints: continue "
        "with "
        "runner run FOLDER/recipe.toml --checkpoint FOLDER/checkpoints/step-...",
        home.string(), (home / "runs").string(), counted(folders, "folder"));
  return fmt::format("no runs in {} yet; start one with: runner run RECIPE.toml (runner init writes a recipe)",
                     home.string());
}

ExitCode list(const LsOptions& options) {
  check_status(options.status);
  const std::string home = ledger_home();
  const auto all = Ledger(home, Ledger::Mode::read).runs();
  auto runs = choose(all, options);
  sort_by(options.sort, runs);
  if (options.json) {
    auto rows = nlohmann::json::array();
    for (const auto& run : runs) rows.push_back(to_json(run));
    std::puts(nlohmann::json{{"schema", 1}, {"runs", rows}}.dump().c_str());
  } else if (!runs.empty()) {
    std::fputs(table(runs).c_str(), stdout);
  } else if (all.empty()) {
    log::info("{}", no_runs(home));
  } else {
    log::info("no run matches these filters ({} in {})", counted(std::ssize(all), "run"), home);
  }
  return ExitCode::done;
}

}  // namespace

Action setup_ls(CLI::App& app) {
  auto options = std::make_shared<LsOptions>();
  add_json_option(app, options->json);
  app.add_option("--status", options->status,
                 "Only runs of this status: running, finished, failed, interrupted, preempted, pruned, lost");
  app.add_option("--tag", options->tags, "Only runs with this tag; given several times, with all of them")
      ->allow_extra_args(false);
  app.add_option("-n", options->newest, "Only the newest N runs")->type_name("N");
  app.add_option("--sort", options->sort, "Column to sort by, smallest first; runs without a metric come last")
      ->check(CLI::IsMember({"started", "name", "status", "strategy", "took", "steps", "metric"}))
      ->capture_default_str();
  app.footer("METRIC is the last value of checkpoint.monitor (val_loss), or of the loss in runs without validation.");
  return [options] { return list(*options); };
}

}  // namespace runner
