// `runner rm`: moves runs into the trash.
#include <cstdio>
#include <memory>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/trash.hpp"

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

}  // namespace runner
