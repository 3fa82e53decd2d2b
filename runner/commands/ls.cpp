// `runner ls`: the runs of the ledger, newest last.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/relative_time.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

struct LsOptions {
  bool json = false;
  std::string status;
  std::vector<std::string> tags;
  size_t newest = 0;  ///< 0 = all
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

std::string table(const std::vector<RunRow>& runs) {
  const double now = wall_seconds();
  const bool tagged = std::any_of(runs.begin(), runs.end(), [](const RunRow& run) { return !run.tags.empty(); });
  std::vector<Column> columns = {{"ID"},      {"NAME", false, true}, {"STATUS"},      {"STRATEGY"},
                                 {"STARTED"}, {"TOOK", true},        {"STEPS", true}, {"LOSS", true}};
  if (tagged) columns.push_back({"TAGS", false, true});
  std::vector<std::vector<std::string>> rows;
  for (const auto& run : runs) {
    auto& row = rows.emplace_back();
    row = {run.id,
           run.name,
           run.status,
           run.strategy,
           format_ago(run.started, now),
           format_duration(run.ended.value_or(now) - run.started),
           std::to_string(run.steps),
           run.final_loss ? fmt::format("{:.4f}", *run.final_loss) : "-"};
    if (tagged) row.push_back(join(run.tags, ", "));
  }
  return format_table(columns, rows);
}

ExitCode list(const LsOptions& options) {
  check_status(options.status);
  const std::string home = ledger_home();
  const auto all = Ledger(home, Ledger::Mode::read).runs();
  const auto runs = choose(all, options);
  if (options.json) {
    auto rows = nlohmann::json::array();
    for (const auto& run : runs) rows.push_back(to_json(run));
    std::puts(nlohmann::json{{"schema", 1}, {"runs", rows}}.dump().c_str());
  } else if (!runs.empty()) {
    std::fputs(table(runs).c_str(), stdout);
  } else if (all.empty()) {
    log::info("no runs in {} yet; start one with: runner run RECIPE.toml (runner init writes a recipe)", home);
  } else {
    log::info("none of the {} runs in {} is like that", all.size(), home);
  }
  return ExitCode::done;
}

}  // namespace

Action setup_ls(CLI::App& app) {
  auto options = std::make_shared<LsOptions>();
  app.add_flag("--json", options->json, "Print {\"schema\", \"runs\"} as one JSON line");
  app.add_option("--status", options->status,
                 "Only runs of this status: running, finished, failed, interrupted, preempted, pruned, lost");
  app.add_option("--tag", options->tags, "Only runs with this tag; given several times, with all of them")
      ->allow_extra_args(false);
  app.add_option("-n", options->newest, "Only the newest N runs")->type_name("N");
  return [options] { return list(*options); };
}

}  // namespace runner
