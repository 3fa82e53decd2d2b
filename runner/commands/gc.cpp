// `runner gc`: removes checkpoints that no rule keeps, and what killed processes have left.
#include <cstdio>
#include <memory>

#include "runner/base/fault_point.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/garbage.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/filter.hpp"
#include "runner/ledger/orphans.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

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
      ->check(CLI::NonNegativeNumber);
  app.add_option("--keep-every", options->rule.keep_every,
                 "Keep the checkpoints of steps that are multiples of this; default keep_every_n_steps of its recipe")
      ->type_name("STEPS")
      ->check(CLI::NonNegativeNumber);
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
