// Verbs that change what users say about runs: `runner tag`, `note`, `rename`, `group` and `archive`.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/base/log.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/report/quantity.hpp"

namespace runner {

namespace {

struct EditOptions {
  std::vector<std::string> words;  ///< runs or a filter, and what the verb takes besides
  std::string run, name;
  bool append = false, undo = false, json = false;
};

/// A value of the audit trail; a list of tags as "a, b".
std::string value_text(const nlohmann::json& value) {
  if (value.is_array()) return value.empty() ? "none" : join(value.get<std::vector<std::string>>(), ", ");
  const std::string text = first_line(plain(value));
  return text.empty() ? "none" : text;
}

/// "RUN: name a -> b, tags [] -> [\"good\"]": the entries of the audit trail since `begun`.
std::string newest_changes(const Ledger& ledger, const std::string& run, size_t begun) {
  const auto all = ledger.show(run).at("changes");
  std::vector<std::string> words;
  for (size_t i = begun; i < all.size(); ++i)
    words.push_back(fmt::format("{} {} -> {}", plain(all[i].at("what")), value_text(all[i].at("before")),
                                value_text(all[i].at("after"))));
  return fmt::format("{}: {}", run, join(words, ", "));
}

/// Makes an edit of the chosen runs. Reports it on stderr, or with `json` as {changed, runs} on stdout. `further`: as in chosen_runs().
ExitCode edit_runs(const std::vector<std::string>& words, const RunEdit& edit, bool json,
                   const std::string& further = "") {
  Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto runs = chosen_runs(ledger, words, ChoiceFor::changing, further);
  const size_t begun = runs.size() == 1 ? ledger.show(runs[0]).at("changes").size() : 0;
  const int changed = ledger.edit(runs, edit);
  if (json) {
    auto rows = nlohmann::json::array();
    for (const auto& run : runs) {
      const auto all = ledger.show(run);
      rows.push_back({{"id", run}});
      for (const char* field : {"name", "tags", "notes", "group", "archived"}) rows.back()[field] = all.at(field);
    }
    print_json(nlohmann::json{{"schema", 1}, {"changed", changed}, {"runs", rows}});
  } else if (runs.size() == 1) {
    log::info("{}",
              changed > 0 ? newest_changes(ledger, runs[0], begun) : fmt::format("run {} stays as it is", runs[0]));
  } else {
    log::info("changed {} of {}", changed, counted(std::ssize(runs), "run"));
  }
  return ExitCode::done;
}

/// Whether any run has the tag, which may look like a term of a filter ("lr=1e-3").
bool is_tag(const std::string& text) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  return std::ranges::any_of(ledger.runs(),
                             [&](const RunRow& run) { return std::ranges::find(run.tags, text) != run.tags.end(); });
}

ExitCode tag(const EditOptions& options) {
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

ExitCode note(const EditOptions& options) {
  if (options.words.empty() && options.append) throw usage_error("note --append needs a text");
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const std::string run = ledger.find_run(options.run);
  if (options.words.empty()) {
    const auto notes = ledger.show(run).at("notes").get<std::string>();
    if (options.json)
      print_json(nlohmann::json{{"schema", 1}, {"run", run}, {"notes", notes}});
    else if (!notes.empty())
      std::puts(terminal_text(notes).c_str());
    return ExitCode::done;
  }
  RunEdit edit;
  (options.append ? edit.appended_notes : edit.notes.emplace()) = join(options.words, " ");
  return edit_runs({run}, edit, options.json);
}

}  // namespace

Action setup_tag(CLI::App& app) {
  auto options = std::make_shared<EditOptions>();
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

Action setup_note(CLI::App& app) {
  auto options = std::make_shared<EditOptions>();
  add_run_option(app, options->run);
  app.add_option("text", options->words, "The new notes; without it, prints them")->type_name("");
  app.add_flag("--append", options->append, "Add the text after the notes, as a new line");
  add_json_option(app, options->json);
  app.footer("  runner note last \"the first run with warm-up\"\n  runner note last --append \"diverged at step 900\"");
  return [options] { return note(*options); };
}

Action setup_rename(CLI::App& app) {
  auto options = std::make_shared<EditOptions>();
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

Action setup_group(CLI::App& app) {
  auto options = std::make_shared<EditOptions>();
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

Action setup_archive(CLI::App& app) {
  auto options = std::make_shared<EditOptions>();
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
