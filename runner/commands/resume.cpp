// `runner resume`.
#include <memory>

#include "runner/base/files.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

Action setup_resume(CLI::App& app) {
  auto options = std::make_shared<LaunchOptions>();
  auto wanted = std::make_shared<std::string>("last");
  app.add_option("run", *wanted, "A run: id, part of one, name, or last")->capture_default_str();
  app.add_option("--checkpoint", options->resume_checkpoint, "A checkpoint folder of the run; default the newest good one");
  app.add_option("--set", options->overrides, "KEY=VALUE: change a value, e.g. --set train.max_steps=400 or --set strategy=ddp")->allow_extra_args(false);
  app.add_flag("--json", options->json, "Print the result as one JSON line on stdout");
  return [options, wanted] {
    {
      Ledger ledger(ledger_home(), Ledger::Mode::write);
      options->resume_run = ledger.find_run(*wanted);
      options->recipe_file = (fs::path(ledger.run_dir(options->resume_run)) / "recipe.toml").string();
      for (const auto& row : ledger.runs())
        if (row.id == options->resume_run && row.status == "running")
          throw usage_error("run {} is still running; stop it first", options->resume_run);
    }
    return launch_run(*options);
  };
}

}  // namespace runner
