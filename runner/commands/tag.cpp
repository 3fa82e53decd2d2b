// `runner tag`: adds tags to runs and removes them.
#include <algorithm>
#include <memory>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"

namespace runner {

namespace {

struct TagOptions {
  std::vector<std::string> words;
  bool json = false;
};

/// Whether any run has the tag, which may look like a term of a filter ("lr=1e-3").
bool is_tag(const std::string& text) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  return std::ranges::any_of(ledger.runs(),
                             [&](const RunRow& run) { return std::ranges::find(run.tags, text) != run.tags.end(); });
}

ExitCode tag(const TagOptions& options) {
  std::vector<std::string> runs;
  RunEdit edit;
  for (const auto& word : options.words) {
    // The front turns -TAG into !TAG. A negated term of a filter has a ":" or another operator.
    const bool removes =
        word.starts_with('!') && (word.find_first_of(":=<>") == std::string::npos || is_tag(word.substr(1)));
    if (word.starts_with('+'))
      edit.added_tags.push_back(word.substr(1));
    else if (removes)
      edit.removed_tags.push_back(word.substr(1));
    else
      runs.push_back(word);
  }
  if (runs.empty()) throw usage_error("tag needs a run: runner tag RUN +TAG -TAG");
  if (edit.added_tags.empty() && edit.removed_tags.empty())
    throw usage_error("tag needs tags: +TAG adds one, -TAG removes one, as in `runner tag {} +good`", runs.front());
  return edit_runs(runs, edit, options.json);
}

}  // namespace

Action setup_tag(CLI::App& app) {
  auto options = std::make_shared<TagOptions>();
  app.add_option("runs", options->words, "Runs (or a filter such as status:failed), then +TAG or -TAG")
      ->required()
      ->type_name("RUN... +TAG -TAG");
  add_json_option(app, options->json);
  app.footer(
      "  runner tag last +good -draft\n  runner tag status:failed since:7d +look\n"
      "Tags can also be changed while a run is going on. `runner show RUN --json` has all changes, with time and "
      "user.");
  return [options] { return tag(*options); };
}

}  // namespace runner
