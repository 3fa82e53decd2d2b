// `runner gc`: removes checkpoints that no rule keeps, and what killed processes have left.
#include "runner/commands/garbage.hpp"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/filter.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/orphans.hpp"
#include "runner/ledger/trash.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// Which checkpoints of a run stay. Without a value, the run's own rule counts ([checkpoint] of its recipe).
struct CheckpointRule {
  std::optional<int64_t> keep_last, keep_best, keep_every;
};

/// A run whose checkpoints are not touched, and why: it is running, or a running run uses it.
struct SkippedRun {
  std::string run, why;
};

/// A class of other garbage.
struct Garbage {
  std::string what;  ///< "folders without a run"
  int64_t count = 0, bytes = 0;
  std::string asked_with;  ///< the option that removes it; empty: it is always removed
};

struct GarbageChoice {
  bool dry_run = false;
  bool orphans = false;  ///< folders in runs/ that no run of the ledger has
  bool cache = false;    ///< files that are made from data
  bool backups = false;  ///< copies of the ledger from before a migration
};

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

/// The surplus checkpoints of `runs`. Never the newest checkpoint that verifies, and never one that a running run, or a run that may
/// be resumed, starts from. Adds to `skipped`.
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

/// Removes what the choice names, and returns all classes that are not empty: temporary files of processes that have ended, folders
/// that killed purges and imports have left, texts that no run refers to, folders without a run, the cache, copies of the ledger, the
/// trash (which only `runner purge` empties).
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
  classes.push_back(remove_all_of("folders without a run in the ledger",
                                  orphaned_folders(home, removes && choice.orphans), "--orphans",
                                  removes && choice.orphans));
  try {  // last: it writes the ledger
    const auto texts = unreferenced_texts_of(home, choice.dry_run);
    classes.push_back({.what = "texts in the ledger that no run refers to",
                       .count = texts.count,
                       .bytes = texts.bytes,
                       .asked_with = ""});
  } catch (const sqlite::Failure& failure) {
    log::warning("texts in the ledger that no run refers to stay: {}", failure.what());
  }
  Garbage trashed{
      .what = "runs in the trash", .count = std::ssize(trash.runs()), .bytes = 0, .asked_with = "runner purge"};
  for (const auto& run : trash.runs()) trashed.bytes += bytes_below(run.folder);
  classes.push_back(trashed);
  std::erase_if(classes, [](const Garbage& garbage) { return garbage.count == 0; });
  return classes;
}

struct GcOptions {
  std::vector<std::string> runs;
  CheckpointRule rule;
  GarbageChoice choice;
  bool json = false, yes = false;
};

/// All of an archived run is kept, unless it is named.
std::vector<std::string> runs_not_archived(const Ledger& ledger) {
  std::vector<std::string> ids;
  for (const auto& run : ledger.runs(parse_filter(""))) ids.push_back(run.id);
  return ids;
}

nlohmann::json as_json(const std::vector<SurplusCheckpoint>& surplus, const std::vector<SkippedRun>& skipped,
                       const std::vector<Garbage>& classes, const GcOptions& options) {
  auto checkpoints = nlohmann::json::array(), runs = nlohmann::json::array(), others = nlohmann::json::array();
  for (const auto& one : surplus)
    checkpoints.push_back(
        {{"run", one.run}, {"path", one.path.string()}, {"bytes", one.bytes}, {"complete", one.published}});
  for (const auto& [run, why] : skipped) runs.push_back({{"run", run}, {"why", why}});
  for (const auto& one : classes)
    others.push_back({{"what", one.what},
                      {"count", one.count},
                      {"bytes", one.bytes},
                      {"removed_by", one.asked_with.empty() ? nlohmann::json() : nlohmann::json(one.asked_with)}});
  return {{"schema", 1},
          {"dry_run", options.choice.dry_run},
          {"checkpoints", checkpoints},
          {"skipped", runs},
          {"other", others}};
}

bool is_removed(const Garbage& garbage, const GarbageChoice& choice) {
  return garbage.asked_with.empty() || (garbage.asked_with == "--orphans" && choice.orphans) ||
         (garbage.asked_with == "--cache" && choice.cache) || (garbage.asked_with == "--backups" && choice.backups);
}

void print(const std::vector<SurplusCheckpoint>& surplus, const std::vector<SkippedRun>& skipped,
           const std::vector<Garbage>& classes, const GcOptions& options) {
  std::vector<std::vector<std::string>> rows;
  int64_t sum = 0;
  for (const auto& one : surplus) {
    rows.push_back({"checkpoint", one.path.string(), format_bytes(one.bytes), ""});
    sum += one.bytes;
  }
  for (const auto& one : classes) {
    const bool removed = is_removed(one, options.choice);
    rows.push_back({std::to_string(one.count), one.what, format_bytes(one.bytes),
                    removed ? "" : "stays; removed by " + one.asked_with});
    if (removed) sum += one.bytes;
  }
  std::fputs(format_table({{""}, {.title = "", .may_shrink = true}, {"", true}, {""}}, rows).c_str(), stdout);
  for (const auto& [run, why] : skipped) log::info("note: the checkpoints of {} stay: {}", run, why);
  log::info("{} {}", format_bytes(sum), options.choice.dry_run ? "would be removed" : "removed");
  if (sum == 0 && !options.rule.keep_last)
    log::info(
        "note: a run keeps the checkpoints that its recipe asks for; --keep-last 1 leaves the newest good one of each");
}

/// Asks before checkpoints and folders without a run are removed, whose paths it prints. Other garbage can be made again.
void ask_before_removal(const std::string& home, const std::vector<SurplusCheckpoint>& surplus,
                        const GcOptions& options) {
  if (options.choice.dry_run || options.yes) return;
  std::vector<fs::path> folders;
  for (const auto& one : surplus) folders.push_back(one.path);
  const auto orphans = options.choice.orphans ? orphaned_folders(home, /*hide=*/false) : std::vector<fs::path>();
  folders.insert(folders.end(), orphans.begin(), orphans.end());
  if (folders.empty()) return;
  std::vector<std::string> parts;
  if (!surplus.empty()) parts.push_back(counted(std::ssize(surplus), "checkpoint"));
  if (!orphans.empty()) parts.push_back(counted(std::ssize(orphans), "folder") + " without a run");
  for (const auto& folder : folders) log::info("  {}", folder.string());
  ask_to_delete("gc", join(parts, " and "), options.yes);
}

ExitCode collect(const GcOptions& options) {
  const std::string home = ledger_home();
  if (options.rule.keep_last && *options.rule.keep_last < 1)
    throw usage_error("--keep-last {}: the newest checkpoint of a run always stays, so this is at least 1",
                      *options.rule.keep_last);
  { const Ledger brings_back_a_lost_one(home, Ledger::Mode::read); }
  if (!fs::exists(fs::path(home) / "ledger.db"))
    throw usage_error("there is no ledger in {}; RUNNER_HOME=FOLDER names another one", home);
  std::vector<SkippedRun> skipped;
  std::vector<SurplusCheckpoint> surplus;
  {
    // On a full disk, the ledger cannot be written before something was removed.
    const Ledger ledger(home, Ledger::Mode::read);
    const auto runs =
        options.runs.empty() ? runs_not_archived(ledger) : chosen_runs(ledger, options.runs, ChoiceFor::changing);
    surplus = surplus_checkpoints_of(home, runs, options.rule, skipped);
  }
  ask_before_removal(home, surplus, options);
  if (!options.choice.dry_run)
    std::erase_if(surplus, [&](const SurplusCheckpoint& checkpoint) {
      const auto result = remove_surplus(home, checkpoint);
      if (!result.used_by.empty()) skipped.push_back({checkpoint.run, result.used_by});
      fault_point("gc");
      return !result.removed;
    });
  const auto classes = collect_garbage(home, options.choice);
  if (options.json)
    print_json(as_json(surplus, skipped, classes, options));
  else
    print(surplus, skipped, classes, options);
  return ExitCode::done;
}

}  // namespace

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

Action setup_gc(CLI::App& app) {
  auto options = std::make_shared<GcOptions>();
  app.add_option(
         "runs", options->runs,
         "Only the checkpoints of these runs, or of those that a filter finds; default all that are not archived")
      ->type_name("RUN ... | FILTER");
  app.add_flag("-n,--dry-run", options->choice.dry_run, "Only print what would be removed, with its bytes");
  app.add_option("--keep-last", options->rule.keep_last,
                 "Newest checkpoints to keep of each run; default as in its recipe")
      ->type_name("N");
  app.add_option("--keep-best", options->rule.keep_best,
                 "Best checkpoints to keep, by checkpoint.monitor; default save_top_k of its recipe")
      ->type_name("N")
      ->check(at_least(0));
  app.add_option("--keep-every", options->rule.keep_every,
                 "Keep the checkpoints of steps that are multiples of this; default keep_every_n_steps of its recipe")
      ->type_name("STEPS")
      ->check(at_least(0));
  app.add_flag("--orphans", options->choice.orphans, "Also remove folders in runs/ that no run of the ledger has");
  app.add_flag("--cache", options->choice.cache,
               "Also remove tokenised data and trained tokenizers; they are made again when needed");
  app.add_flag("--backups", options->choice.backups, "Also remove copies of the ledger from before a new schema");
  add_yes_option(app, options->yes);
  add_json_option(app, options->json);
  app.footer(
      "The newest good checkpoint of a run stays, and so does one that another run starts from. Runs that are running, "
      "and those that "
      "running runs use, are left out. It asks before it removes checkpoints or folders without a run.\n\n  runner gc "
      "--dry-run --keep-last 1 --keep-best 1");
  return [options] { return collect(*options); };
}

}  // namespace runner
