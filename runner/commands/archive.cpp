// `runner archive`: hides runs from listings, or shows them again.
#include <memory>

#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"

namespace runner {

Action setup_archive(CLI::App& app) {
  struct Options {
    std::vector<std::string> words;
    bool undo = false, json = false;
  };
  auto options = std::make_shared<Options>();
  add_runs_option(app, options->words);
  app.add_flag("--undo", options->undo, "List the runs again");
  add_json_option(app, options->json);
  app.footer(
      "  runner archive status:failed before:30d\nAll of an archived run is kept. `runner ls archived:yes` lists "
      "them.");
  return [options] {
    RunEdit edit;
    edit.archived = !options->undo;
    // A filter hides archived runs unless it names them.
    return edit_runs(options->words, edit, options->json, options->undo ? "archived:yes" : "");
  };
}

}  // namespace runner
