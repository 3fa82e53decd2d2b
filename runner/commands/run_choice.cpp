#include "runner/commands/run_choice.hpp"

#include <algorithm>
#include <cstdio>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/filter_words.hpp"

namespace runner {

void add_runs_option(CLI::App& app, std::vector<std::string>& words) {
  auto* option = app.add_option("runs", words,
                                "Runs (an id, part of it, a name, or last), or a filter like status:failed before:30d");
  option->type_name("RUN ... | FILTER");
  words.empty() ? option->required() : option->capture_default_str();
}

namespace {

/// Whether a word is a term of the filter language and not the name or id of a run.
bool is_term(const Ledger& ledger, const std::string& word) {
  if (word.find_first_of(":<>=!(*") == std::string::npos && word != "not") return false;
  const auto runs = ledger.runs();  // names may have these characters too
  return std::ranges::none_of(runs, [&](const RunRow& run) { return run.name == word; });
}

}  // namespace

std::vector<std::string> chosen_runs(const Ledger& ledger, std::vector<std::string> words, const std::string& further) {
  std::vector<std::string> ids;
  if (std::ranges::any_of(words, [&](const auto& word) { return is_term(ledger, word); })) {
    if (!further.empty()) words.push_back(further);
    for (const auto& run : ledger.runs(filter_of(words))) ids.push_back(run.id);
    if (ids.empty()) throw usage_error("no run matches {}", join(words, " "));
    return ids;
  }
  for (const auto& word : words)
    if (const auto id = ledger.find_run(word); std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  return ids;
}

ExitCode edit_runs(const std::vector<std::string>& words, const RunEdit& edit, bool json, const std::string& further) {
  Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto runs = chosen_runs(ledger, words, further);
  const int changed = ledger.edit(runs, edit);
  if (json) {
    auto rows = nlohmann::json::array();
    for (const auto& run : runs) {
      const auto all = ledger.show(run);
      rows.push_back({{"id", run}});
      for (const char* field : {"name", "tags", "notes", "group", "archived"}) rows.back()[field] = all.at(field);
    }
    std::puts(nlohmann::json{{"schema", 1}, {"changed", changed}, {"runs", rows}}.dump().c_str());
  } else if (runs.size() == 1) {
    log::info("run {} {}", runs[0], changed > 0 ? "is changed" : "stays as it is");
  } else {
    log::info("changed {} of {}", changed, counted(std::ssize(runs), "run"));
  }
  return ExitCode::done;
}

}  // namespace runner
