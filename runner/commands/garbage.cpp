#include "runner/commands/garbage.hpp"

#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/ledger/orphans.hpp"
#include "runner/ledger/trash.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// The rule of the run's recipe, with the values that the user gives instead.
Retention retention_of(const json& config, const CheckpointRule& rule, const Attempts& attempts) {
  const json settings = config.value("checkpoint", json::object());
  const auto number = [&](const char* key, int64_t otherwise) {
    const auto found = settings.find(key);
    return found != settings.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
  };
  const std::string monitor = settings.value("monitor", std::string("val_loss"));
  // In a recipe, keep_last = 0 keeps all. Who asks for the best ones, or for every Nth, wants others removed.
  int64_t last = rule.keep_last.value_or(number("keep_last", 0));
  if (last == 0 && (rule.keep_best || rule.keep_every)) last = 1;
  return {.keep_last = last,
          .save_top_k = rule.keep_best.value_or(number("save_top_k", 0)),
          .keep_every = rule.keep_every.value_or(number("keep_every_n_steps", 0)),
          .monitor = monitor,
          .higher_is_better = higher_is_better(monitor),
          .attempts = attempts,
          .verify = true};
}

void add_surplus(const std::string& run, const fs::path& folder, const Retention& retention,
                 const std::vector<fs::path>& starts, std::vector<SurplusCheckpoint>& surplus) {
  // This also completes replacements, so that no hidden folder is a checkpoint that is still needed.
  const auto newest = newest_good_checkpoint(folder, retention.attempts);
  for (const auto& path : surplus_checkpoints(folder, retention)) {
    const bool needed = path == newest || std::ranges::find(starts, real_path(path)) != starts.end();
    if (!needed) surplus.push_back({.run = run, .path = path, .bytes = bytes_below(path)});
  }
  for (const auto& path : hidden_folders(folder))
    surplus.push_back({.run = run, .path = path, .bytes = bytes_below(path), .published = false});
}

/// The process in the name of a temporary file, NAME.PID.tmp (write_file_atomic); 0 if there is none.
int process_in(const std::string& name) {
  const std::string end = ".tmp";
  if (!name.ends_with(end)) return 0;
  const std::string rest = name.substr(0, name.size() - end.size());
  const auto dot = rest.rfind('.');
  if (dot == std::string::npos) return 0;
  return parse_number<int>(std::string_view(rest).substr(dot + 1)).value_or(0);
}

/// Temporary files of processes that have ended. Those that changed within the last hour stay: another machine may write them.
std::vector<fs::path> temporary_files(const fs::path& home) {
  std::vector<fs::path> found;
  const auto latest = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  const auto look_at = [&](const fs::directory_entry& entry) {
    std::error_code failed;
    const int pid = process_in(entry.path().filename().string());
    if (pid == 0 || !entry.is_regular_file(failed) || ::kill(pid, 0) == 0 || errno != ESRCH) return;
    if (fs::last_write_time(entry.path(), failed) < latest && !failed) found.push_back(entry.path());
  };
  // RUNNER_HOME may be a folder that has other files of the user.
  for (fs::directory_iterator entry(home, error), end; !error && entry != end; entry.increment(error))
    for (const char* ours : {"ledger.db", ".import", ".gitignore", "spools-wait"})
      if (entry->path().filename().string().starts_with(ours)) look_at(*entry);
  constexpr auto options = fs::directory_options::skip_permission_denied;
  for (const char* ours : {"runs", "sweeps", "cache", "files"})
    for (fs::recursive_directory_iterator entry(home / ours, options, error), end; !error && entry != end;
         entry.increment(error)) {
      const auto name = entry->path().filename();
      if (name == "checkpoints" || name == "artifacts") entry.disable_recursion_pending();
      look_at(*entry);
    }
  return found;
}

/// Copies of the ledger: ledger.db.before-010.
std::vector<fs::path> backups(const fs::path& home) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(home, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with("ledger.db.before-")) found.push_back(entry->path());
  return found;
}

Garbage remove_all_of(const std::string& what, const std::vector<fs::path>& paths, const std::string& asked_with,
                      bool remove) {
  Garbage garbage{.what = what, .asked_with = asked_with};
  for (const auto& path : paths) {
    const int64_t bytes = bytes_below(path);
    std::error_code error;
    if (remove && fs::remove_all(path, error) == 0) continue;  // another process has removed it
    ++garbage.count;
    garbage.bytes += bytes;
    if (error) log::warning("cannot remove {}: {}", path.string(), error.message());
  }
  return garbage;
}

bool any_running(const std::string& home) {
  const auto runs = Ledger(home, Ledger::Mode::read).runs();
  return std::ranges::any_of(runs, [](const RunRow& run) { return run.status == "running"; });
}

}  // namespace

std::vector<SurplusCheckpoint> surplus_checkpoints_of(const std::string& home, const std::vector<std::string>& runs,
                                                      const CheckpointRule& rule, std::vector<SkippedRun>& skipped) {
  const Ledger ledger(home, Ledger::Mode::read);
  const auto uses = live_uses(home, runs);
  const auto starts = foreign_starts(home);
  std::vector<SurplusCheckpoint> surplus;
  for (const auto& run : runs) {
    const fs::path folder = fs::path(ledger.run_dir(run)) / "checkpoints";
    if (!fs::is_directory(folder)) continue;
    if (const auto use = uses.find(run); use != uses.end()) {
      skipped.push_back({run, use->second});
      continue;
    }
    const json config = ledger.show(run).at("config");
    add_surplus(run, folder, retention_of(config, rule, ledger.attempts(run)), starts, surplus);
  }
  return surplus;
}

RemovedCheckpoint remove_surplus(const std::string& home, const SurplusCheckpoint& checkpoint) {
  RemovedCheckpoint result;
  fs::path hidden;  // deleted when other processes can write the ledger again
  result.used_by = remove_unused_checkpoint(home, checkpoint.run, checkpoint.path, [&] {
    std::error_code error;
    const auto status = fs::symlink_status(checkpoint.path, error);
    if (!fs::exists(status)) return;
    if (fs::is_symlink(status))
      log::info("note: {} was a link; its files stay in {}", checkpoint.path.string(),
                real_path(checkpoint.path).string());
    hidden = hide_checkpoint(checkpoint.path);
    result.removed = !hidden.empty();
  });
  std::error_code error;
  fs::remove_all(hidden, error);
  if (error) log::warning("cannot remove {}: {}", hidden.string(), error.message());
  return result;
}

std::vector<Garbage> collect_garbage(const std::string& home, const GarbageChoice& choice) {
  const bool removes = !choice.dry_run;
  std::vector<Garbage> classes;
  classes.push_back(remove_all_of("temporary files of processes that have ended", temporary_files(home), "", removes));
  // First what needs no ledger: on a full disk, this makes room to write it.
  const fs::path cache = fs::path(home) / "cache";
  if (choice.cache && removes && any_running(home))
    throw usage_error("--cache: a run is running, and may read the cache in {}: remove it later", cache.string());
  classes.push_back(remove_all_of("the cache of files made from data",
                                  fs::exists(cache) ? std::vector{cache} : std::vector<fs::path>(), "--cache",
                                  removes && choice.cache));
  classes.push_back(remove_all_of("copies of the ledger from before a new schema", backups(home), "--backups",
                                  removes && choice.backups));
  Trash trash(home);
  const Leftovers left = trash.remove_leftovers(choice.dry_run);
  classes.push_back(
      {.what = "folders of purged runs", .count = left.purged.count, .bytes = left.purged.bytes, .asked_with = ""});
  classes.push_back({.what = "folders of imports that were not completed",
                     .count = left.imports.count,
                     .bytes = left.imports.bytes,
                     .asked_with = ""});
  const auto texts = unreferenced_texts_of(home, choice.dry_run);
  classes.push_back({.what = "texts in the ledger that no run refers to",
                     .count = texts.count,
                     .bytes = texts.bytes,
                     .asked_with = ""});
  classes.push_back(remove_all_of("folders without a run in the ledger",
                                  orphaned_folders(home, removes && choice.orphans), "--orphans",
                                  removes && choice.orphans));
  Garbage trashed{
      .what = "runs in the trash", .count = std::ssize(trash.runs()), .bytes = 0, .asked_with = "runner purge"};
  for (const auto& run : trash.runs()) trashed.bytes += bytes_below(run.folder);
  classes.push_back(trashed);
  std::erase_if(classes, [](const Garbage& garbage) { return garbage.count == 0; });
  return classes;
}

}  // namespace runner
