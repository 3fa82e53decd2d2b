// `runner note`: prints, replaces or extends the notes of a run.
#include <cstdio>
#include <memory>

#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"

namespace runner {

namespace {

struct NoteOptions {
  std::string run;
  std::vector<std::string> text;
  bool append = false, json = false;
};

ExitCode note(const NoteOptions& options) {
  if (options.text.empty() && options.append) throw usage_error("note --append needs a text");
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const std::string run = ledger.find_run(options.run);
  if (options.text.empty()) {
    const auto notes = ledger.show(run).at("notes").get<std::string>();
    if (options.json)
      print_json(nlohmann::json{{"schema", 1}, {"run", run}, {"notes", notes}});
    else if (!notes.empty())
      std::puts(terminal_text(notes).c_str());
    return ExitCode::done;
  }
  RunEdit edit;
  (options.append ? edit.appended_notes : edit.notes.emplace()) = join(options.text, " ");
  return edit_runs({run}, edit, options.json);
}

}  // namespace

Action setup_note(CLI::App& app) {
  auto options = std::make_shared<NoteOptions>();
  add_run_option(app, options->run);
  app.add_option("text", options->text, "The new notes; without it, prints them")->type_name("");
  app.add_flag("--append", options->append, "Add the text after the notes, as a new line");
  add_json_option(app, options->json);
  app.footer("  runner note last \"the first run with warm-up\"\n  runner note last --append \"diverged at step 900\"");
  return [options] { return note(*options); };
}

}  // namespace runner
