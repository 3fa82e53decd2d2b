// `runner rm`, `restore` and `purge`: move runs into the trash, bring them back, or delete them for good.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/checkpoint_plugin.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/trash.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

struct RmOptions {
  std::vector<std::string> runs;
  bool dry_run = false, json = false;
};

void refuse_held(const Trash& trash, const std::vector<std::string>& runs) {
  std::vector<std::string> held;
  for (const auto& run : runs)
    if (const auto why = trash.held_by(run); !why.empty()) held.push_back(fmt::format("{}: {}", run, why));
  if (!held.empty()) throw usage_error("nothing would be removed, because this is in use:\n  {}", join(held, "\n  "));
}

ExitCode remove_runs(const RmOptions& options) {
  const std::string home = ledger_home();
  const auto runs = chosen_runs(Ledger(home, Ledger::Mode::read), options.runs, ChoiceFor::changing);
  Trash trash(home);
  if (options.dry_run)
    refuse_held(trash, runs);
  else
    trash.remove(runs);
  for (const auto& run : runs) {
    if (!options.json) std::puts(run.c_str());
    if (const auto children = trash.children(run); !children.empty())
      log::info("note: {} started from {}: {}", counted(std::ssize(children), "run"), run, join(children, ", "));
  }
  if (options.json) print_json({{"schema", 1}, {"dry_run", options.dry_run}, {"runs", runs}});
  const auto count = counted(std::ssize(runs), "run");
  if (options.dry_run)
    log::info("{} would move to the trash", count);
  else
    log::info(
        "{} moved to the trash: `runner restore RUN` brings a run back, `runner purge` deletes the trash for good",
        count);
  return ExitCode::done;
}

struct PurgeOptions {
  std::vector<std::string> runs;
  std::string older_than;
  bool dry_run = false, yes = false, json = false, stored = false;
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

/// A run of the trash that was chosen.
struct ChosenRun {
  TrashedRun run;
  int64_t bytes = 0;  ///< of its folder
  bool purged = false;
};

/// Prints the runs with their folders, which will be deleted.
void print(const std::vector<ChosenRun>& chosen) {
  const double now = wall_seconds();
  std::vector<std::vector<std::string>> rows;
  for (const auto& [run, bytes, purged] : chosen)
    rows.push_back({run.id, run.name, format_ago(run.deleted, now), format_bytes(bytes), run.folder});
  std::fputs(
      format_table({{"ID"}, {.title = "NAME", .may_shrink = true}, {"REMOVED"}, {"BYTES", true}, {"FOLDER"}}, rows)
          .c_str(),
      stdout);
}

nlohmann::json as_json(const std::vector<ChosenRun>& chosen, const Leftovers& left, bool dry_run) {
  auto runs = nlohmann::json::array();
  for (const auto& [run, bytes, purged] : chosen)
    runs.push_back({{"id", run.id},
                    {"name", run.name},
                    {"deleted", run.deleted},
                    {"bytes", bytes},
                    {"folder", run.folder},
                    {"purged", purged}});
  return {
      {"schema", 1}, {"dry_run", dry_run}, {"runs", runs}, {"leftover_bytes", left.purged.bytes + left.imports.bytes}};
}

void tell(const Leftovers& left, bool dry_run) {
  if (const int64_t bytes = left.purged.bytes + left.imports.bytes; bytes > 0)
    log::info("{} of {} {}", format_bytes(bytes),
              left.imports.count == 0  ? "a purge that was killed"
              : left.purged.count == 0 ? "an import that was killed"
                                       : "purges and imports that were killed",
              dry_run ? "would be deleted" : "deleted");
}

/// Removes the run's checkpoints from its store (plugins.checkpoint_io). Without `remove`, only says that they stay: a plug-in of a run
/// that came from elsewhere must not run unasked.
void purge_stored(const TrashedRun& run, bool remove) {
  const fs::path file = fs::path(run.folder) / "recipe.toml";
  if (!fs::exists(file) || read_file(file).find("checkpoint_io") == std::string::npos) return;
  if (!remove) {
    log::info(
        "note: checkpoints of run {} may be stored elsewhere (plugins.checkpoint_io); they stay (--stored removes them "
        "too)",
        run.id);
    return;
  }
  const Recipe recipe = load_recipe(file.string());
  const auto store = open_checkpoint_store(recipe);
  if (!store) return;
  store->open_run(run.id, run.folder, recipe.checkpoint.monitor);
  log::info("removed {} of run {} with {}", counted(store->remove_all(), "stored checkpoint"), run.id, store->file());
}

/// Deletes the runs that are still in the trash. `stored`: also from their stores; a run for which that fails stays in the trash.
void purge(Trash& trash, std::vector<ChosenRun>& chosen, bool stored) {
  int64_t deleted = 0, freed = 0;
  for (auto& [run, bytes, purged] : chosen) {
    if (!trash.has(run.id)) {
      log::info("note: run {} is no longer in the trash, so it stays as it is", run.id);
      continue;
    }
    if (std::error_code error; fs::is_symlink(run.folder, error))
      log::info("note: the folder of run {} was a link; its files stay in {}", run.id, real_path(run.folder).string());
    purge_stored(run, stored);
    freed += trash.purge(run.id);
    purged = true;
    ++deleted;
  }
  trash.remove_unreferenced_texts();
  log::info("deleted {} ({})", counted(deleted, "run"), format_bytes(freed));
}

ExitCode purge_chosen(const PurgeOptions& options) {
  Trash trash(ledger_home());
  std::vector<ChosenRun> runs;
  int64_t bytes = 0;
  for (auto& run : chosen(trash, options)) {
    runs.push_back({.run = run, .bytes = bytes_below(run.folder)});
    bytes += runs.back().bytes;
  }
  const Leftovers left = trash.remove_leftovers(options.dry_run);
  tell(left, options.dry_run);
  const std::string what = fmt::format("{} ({})", counted(std::ssize(runs), "run"), format_bytes(bytes));
  if (runs.empty())
    log::info("{}", trash.runs().empty() ? "the trash is empty" : "no run in the trash matches");
  else if (!options.json)
    print(runs);
  if (options.dry_run && !runs.empty()) log::info("{} would be deleted for good", what);
  if (!options.dry_run && !runs.empty()) {
    ask_to_delete("purge", what, options.yes);
    purge(trash, runs, options.stored);
  }
  if (options.json) print_json(as_json(runs, left, options.dry_run));
  return ExitCode::done;
}

}  // namespace

Action setup_rm(CLI::App& app) {
  auto options = std::make_shared<RmOptions>();
  add_runs_option(app, options->runs);
  app.add_flag("-n,--dry-run", options->dry_run, "Only print which runs it would be");
  add_json_option(app, options->json);
  app.footer(
      "A run in the trash is hidden; its record and its folder stay. A run that is running, or that a running run "
      "uses, stays where it is.\n\n  runner rm last\n  runner rm status:failed before:30d");
  return [options] { return remove_runs(*options); };
}

Action setup_restore(CLI::App& app) {
  auto named = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  app.add_option("trashed", *named, "Runs in the trash: an id, part of it, a name, or last")
      ->required()
      ->type_name("RUN ...");
  add_json_option(app, *json);
  app.footer("`runner ls deleted:yes` lists the trash.");
  return [named, json] {
    Trash trash(ledger_home());
    std::vector<std::string> runs;
    for (const auto& text : *named)
      if (auto run = trash.find(text); std::ranges::find(runs, run) == runs.end()) runs.push_back(run);
    trash.restore(runs);
    if (*json) print_json({{"schema", 1}, {"runs", runs}});
    for (const auto& run : runs)
      if (!*json) std::puts(run.c_str());
    log::info("{} restored", counted(std::ssize(runs), "run"));
    return ExitCode::done;
  };
}

Action setup_purge(CLI::App& app) {
  auto options = std::make_shared<PurgeOptions>();
  app.add_option("trashed", options->runs, "Runs in the trash; default all of them")->type_name("RUN ...");
  app.add_option("--older-than", options->older_than, "Only runs that were removed longer ago than this")
      ->type_name("30d");
  app.add_flag("-n,--dry-run", options->dry_run, "Only print which runs it would be, and their bytes");
  add_yes_option(app, options->yes);
  app.add_flag("--stored", options->stored,
               "Also remove the checkpoints that the runs have stored elsewhere, with the plug-ins of their recipes");
  add_json_option(app, options->json);
  app.footer(
      "Deletes the record in the ledger and the run's folder with its checkpoints. `runner rm RUN` moves runs to the "
      "trash.");
  return [options] { return purge_chosen(*options); };
}

}  // namespace runner
