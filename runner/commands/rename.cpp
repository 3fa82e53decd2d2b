// `runner rename`: gives a run another name.
#include <memory>

#include "runner/base/log.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"

namespace runner {

Action setup_rename(CLI::App& app) {
  struct Options {
    std::string run, name;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  add_run_option(app, options->run);
  app.add_option("name", options->name, "The new name")->required();
  add_json_option(app, options->json);
  return [options] {
    RunEdit edit;
    edit.name = options->name;
    const auto run = Ledger(ledger_home(), Ledger::Mode::read).find_run(options->run);
    return edit_runs({run}, edit, options->json);
  };
}

}  // namespace runner
