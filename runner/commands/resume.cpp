// `runner resume`: continues a run.
#include <memory>

#include "runner/base/files.hpp"
#include "runner/base/secrets.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/recorded_secrets.hpp"
#include "runner/commands/requeued_job.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/run_folder.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

namespace {

/// Waits for the processes with which a requeued job trained the run before, if they are on another host.
void wait_for_earlier(const std::string& run) {
  wait_if_requeued("run " + run,
                   [&] { return Ledger(ledger_home(), Ledger::Mode::read).row(run).status != "running"; });
}

}  // namespace

Action setup_resume(CLI::App& app) {
  auto options = std::make_shared<LaunchOptions>();
  auto wanted = std::make_shared<std::string>("last");
  add_run_option(app, *wanted);
  auto* checkpoint = app.add_option("--checkpoint", options->resume_checkpoint,
                                    "A checkpoint folder of the run; default the newest good one");
  app.add_flag("--from-beginning", options->from_beginning,
               "Train again from the first step, although the run has or had checkpoints")
      ->excludes(checkpoint);
  add_launch_options(app, *options);
  return launch_action(options, [options, wanted] {
    {
      Ledger ledger(ledger_home(), Ledger::Mode::read);
      options->resume_run = ledger.find_run(*wanted);
    }
    wait_for_earlier(options->resume_run);
    {
      Ledger ledger(ledger_home(), Ledger::Mode::read);
      options->resumed = ledger.show(options->resume_run);
      needed_folder(ledger, options->resume_run, "resumed");
    }
    const fs::path folder = options->resumed.at("run_dir").get<std::string>();
    options->recipe_file = (folder / "recipe.toml").string();
    // A run that was killed right after its row was written has no file yet.
    const bool has_file = fs::exists(options->recipe_file);
    const std::string recipe =
        has_file ? read_file(options->recipe_file) : options->resumed.at("resolved").get<std::string>();
    if (recipe.find(redacted) != std::string::npos) need_secret_values(options->resumed, options->overrides);
    if (!has_file) write_file_atomic(options->recipe_file, recipe);
    return launch_run(*options);
  });
}

}  // namespace runner
