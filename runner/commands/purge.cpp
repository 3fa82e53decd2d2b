// `runner purge`: deletes runs in the trash for good.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/disk_usage.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/trash.hpp"
#include "runner/report/relative_time.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

struct PurgeOptions {
  std::vector<std::string> runs;
  std::string older_than;
  bool dry_run = false, yes = false;
};

std::vector<TrashedRun> chosen(const Trash& trash, const PurgeOptions& options) {
  auto runs = trash.runs();
  if (!options.runs.empty()) {
    std::vector<std::string> ids;
    for (const auto& text : options.runs) ids.push_back(trash.find(text));  // a run may be named twice
    std::erase_if(runs, [&](const auto& run) { return std::ranges::find(ids, run.id) == ids.end(); });
  }
  if (!options.older_than.empty()) {
    const auto age = parse_duration(options.older_than);
    if (!age) throw usage_error("--older-than {}: this is not a time; write 30d, 12h or 1h30m", options.older_than);
    const double latest = wall_seconds() - static_cast<double>(age->count());
    std::erase_if(runs, [&](const auto& run) { return run.deleted > latest; });
  }
  return runs;
}

/// Prints the runs with the bytes of their folders, and returns the sum.
int64_t list(const std::vector<TrashedRun>& runs) {
  const double now = wall_seconds();
  int64_t sum = 0;
  std::vector<std::vector<std::string>> rows;
  for (const auto& run : runs) {
    const int64_t bytes = bytes_below(run.folder);
    sum += bytes;
    rows.push_back({run.id, run.name, format_ago(run.deleted, now), format_bytes(bytes)});
  }
  std::fputs(format_table({{"ID"}, {.title = "NAME", .may_shrink = true}, {"REMOVED"}, {"BYTES", true}}, rows).c_str(),
             stdout);
  return sum;
}

void ask(const std::string& what) {
  if (!::isatty(STDIN_FILENO))
    throw usage_error("purge deletes {} for good: add --yes to do that without a question", what);
  std::fprintf(stderr, "Delete %s for good? [y/N] ", what.c_str());
  std::string answer;
  std::getline(std::cin, answer);
  if (const auto word = lower(trim(answer)); word != "y" && word != "yes") throw usage_error("nothing was deleted");
}

ExitCode purge(const PurgeOptions& options) {
  Trash trash(ledger_home());
  const auto runs = chosen(trash, options);
  const Leftovers left = trash.remove_leftovers(options.dry_run);
  if (const int64_t bytes = left.purged.bytes + left.imports.bytes; bytes > 0)
    log::info("{} of {} {}", format_bytes(bytes),
              left.imports.count == 0  ? "a purge that was killed"
              : left.purged.count == 0 ? "an import that was killed"
                                       : "purges and imports that were killed",
              options.dry_run ? "would be deleted" : "deleted");
  if (runs.empty()) {
    log::info("{}", trash.runs().empty() ? "the trash is empty" : "no run in the trash matches");
    return ExitCode::done;
  }
  const int64_t bytes = list(runs);
  const std::string what = fmt::format("{} ({})", counted(std::ssize(runs), "run"), format_bytes(bytes));
  if (options.dry_run) {
    log::info("{} would be deleted for good", what);
    return ExitCode::done;
  }
  if (!options.yes) ask(what);
  int64_t deleted = 0, freed = 0;
  for (const auto& run : runs) {
    if (!trash.has(run.id)) {
      log::info("note: run {} is no longer in the trash, so it stays as it is", run.id);
      continue;
    }
    if (std::error_code error; fs::is_symlink(run.folder, error))
      log::info("note: the folder of run {} was a link; its files stay in {}", run.id, real_path(run.folder).string());
    freed += trash.purge(run.id);
    ++deleted;
  }
  trash.remove_unreferenced_texts();
  log::info("deleted {} ({})", counted(deleted, "run"), format_bytes(freed));
  return ExitCode::done;
}

}  // namespace

Action setup_purge(CLI::App& app) {
  auto options = std::make_shared<PurgeOptions>();
  app.add_option("trashed", options->runs, "Runs in the trash; default all of them")->type_name("RUN ...");
  app.add_option("--older-than", options->older_than, "Only runs that were removed longer ago than this")
      ->type_name("30d");
  app.add_flag("-n,--dry-run", options->dry_run, "Only print which runs it would be, and their bytes");
  app.add_flag("-y,--yes", options->yes, "Do not ask");
  app.footer(
      "Deletes the record in the ledger and the run's folder with its checkpoints. `runner rm RUN` moves runs to the "
      "trash.");
  return [options] { return purge(*options); };
}

}  // namespace runner
