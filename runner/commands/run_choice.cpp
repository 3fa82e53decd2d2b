#include "runner/commands/run_choice.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/ledger/filter.hpp"

namespace runner {

void add_runs_option(CLI::App& app, std::vector<std::string>& words) {
  app.add_option("runs", words, "Runs (an id, part of it, a name, or last), or a filter like status:failed before:30d")
      ->required()
      ->type_name("RUN ... | FILTER");
}

namespace {

/// Whether a word is a term of the filter language and not the name or id of a run.
bool is_term(const Ledger& ledger, const std::string& word) {
  if (word.find_first_of(":<>=!(*") == std::string::npos && word != "not") return false;
  const auto runs = ledger.runs();  // names may have these characters too
  return std::ranges::none_of(runs, [&](const RunRow& run) { return run.name == word; });
}

}  // namespace

std::vector<std::string> chosen_runs(const Ledger& ledger, const std::vector<std::string>& words) {
  std::vector<std::string> ids;
  if (std::ranges::any_of(words, [&](const auto& word) { return is_term(ledger, word); })) {
    const std::string text = join(words, " ");
    for (const auto& run : ledger.runs(parse_filter(text))) ids.push_back(run.id);
    if (ids.empty()) throw usage_error("no run matches {}", text);
    return ids;
  }
  for (const auto& word : words)
    if (const auto id = ledger.find_run(word); std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  return ids;
}

}  // namespace runner
