#include "runner/commands/run_choice.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/filter_words.hpp"

namespace runner {

namespace {

/// Whether a word is a term of the filter language and not the name of a run.
bool is_term(const Ledger& ledger, const std::string& word) {
  const bool operators = word.find_first_of(":<>=!(*") != std::string::npos;
  if (!operators && word != "not" && !(word.size() > 1 && word[0] == '-')) return false;
  return std::ranges::none_of(ledger.runs(), [&](const RunRow& run) { return run.name == word; });
}

}  // namespace

void add_runs_option(CLI::App& app, std::vector<std::string>& words) {
  auto* option = app.add_option("runs", words,
                                "Runs (ids, parts of them, names, last), or a filter like status:failed before:30d");
  option->type_name("RUN ... | FILTER");
  words.empty() ? option->required() : option->capture_default_str();
}

std::vector<std::string> chosen_runs(const Ledger& ledger, const std::vector<std::string>& words,
                                     const std::string& further) {
  std::vector<std::string> ids, terms;
  const auto add = [&](const std::string& id) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  };
  for (const auto& word : words) is_term(ledger, word) ? terms.push_back(word) : add(ledger.find_run(word));
  if (terms.empty()) return ids;
  const std::string filter = join(terms, " ");
  if (!further.empty()) terms.push_back(further);
  for (const auto& run : ledger.runs(filter_of(terms))) add(run.id);
  if (ids.empty()) throw usage_error("no run matches the filter `{}`; `runner ls` lists all", filter);
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

std::vector<std::string> short_names(const Ledger& ledger, const std::vector<std::string>& ids) {
  std::map<std::string, std::string> names;
  std::map<std::string, int> count;
  for (const auto& id : ids) ++count[names[id] = ledger.row(id).name];
  std::vector<std::string> out;
  for (const auto& id : ids)
    out.push_back(count[names[id]] > 1 ? names[id] + " " + id.substr(id.rfind('-') + 1) : names[id]);
  return out;
}

}  // namespace runner
