#include "runner/commands/run_choice.hpp"

#include <algorithm>
#include <map>

#include "runner/base/text.hpp"
#include "runner/ledger/filter.hpp"

namespace runner {

namespace {

bool is_term(const std::string& word) {
  return word == "not" || word.find_first_of(":<>=!*") != std::string::npos || (word.size() > 1 && word[0] == '-');
}

}  // namespace

void add_runs_option(CLI::App& app, std::vector<std::string>& words) {
  auto* option =
      app.add_option("runs", words, "Runs: ids, parts of them, names, last, or terms of a filter (runner help ls)");
  words.empty() ? option->required() : option->capture_default_str();
}

std::vector<std::string> chosen_runs(const Ledger& ledger, const std::vector<std::string>& words) {
  std::vector<std::string> ids, terms;
  const auto add = [&](const std::string& id) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  };
  for (const auto& word : words) is_term(word) ? terms.push_back(word) : add(ledger.find_run(word));
  if (terms.empty()) return ids;
  const std::string filter = join(terms, " ");
  const auto rows = ledger.runs(parse_filter(filter));
  for (const auto& row : rows) add(row.id);
  if (ids.empty()) throw usage_error("no run matches the filter `{}`; `runner ls` lists all", filter);
  return ids;
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
