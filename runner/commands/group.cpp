// `runner group`: puts runs into a group.
#include <memory>

#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"

namespace runner {

Action setup_group(CLI::App& app) {
  struct Options {
    std::vector<std::string> words;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("runs", options->words, "Runs (or a filter such as status:failed), then the group; none: no group")
      ->required()
      ->type_name("RUN... GROUP");
  add_json_option(app, options->json);
  app.footer(
      "  runner group last warmup-study\n  runner group 'sweep:lr* status:finished' warmup-study\n"
      "  runner group last none\nFilters find the group as group:NAME; `run.group` in a recipe sets it.");
  return [options] {
    auto words = options->words;
    if (words.size() < 2) throw usage_error("group needs a run and a group: runner group RUN GROUP");
    RunEdit edit;
    edit.group = words.back() == "none" ? "" : words.back();
    words.pop_back();
    return edit_runs(words, edit, options->json);
  };
}

}  // namespace runner
