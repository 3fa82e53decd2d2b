#include "runner/commands/filter_words.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"

namespace runner {

const char* const filter_help =
    "A filter is a list of terms; a run must fulfil all. Quote it, because the shell takes > and <:\n"
    "  'status:failed,lost tag:night since:7d'       fields, with one of several values\n"
    "  'optimizer.lr>1e-3 best(val_loss)<2'          recipe keys (lr is enough) and metrics\n"
    "  'name:gpt* -group:old \"words in the notes\"'   patterns; - negates; words are searched for\n"
    "  'sort:-best(val_loss) limit:20'               the 20 greatest\n"
    "Fields: id, name, status, tag, group, notes, strategy, ranks, steps, started, ended, took, metric, sweep, trial, "
    "parent, "
    "failure, message, exit_code, host, branch, commit, dirty, archived, deleted. Times: 7d, 12h, 2026-11-20, today. "
    "Archived "
    "and deleted runs are listed with archived:yes and deleted:yes.";

void add_filter_option(CLI::App& app, std::vector<std::string>& words) {
  app.add_option("filter", words, "Only runs that match")->type_name("");
}

void add_runs_option(CLI::App& app, std::vector<std::string>& words) {
  auto* option = app.add_option("run", words, "Runs: id, part of it, name, or last; or a filter such as status:failed");
  option->type_name("");
  words.empty() ? option->required() : option->capture_default_str();
}

namespace {

/// The file that stdout goes to; empty if it is none.
fs::path redirected_to() {
  std::error_code error;
  const fs::path file = fs::read_symlink("/proc/self/fd/1", error);
  return !error && fs::is_regular_file(file, error) ? file.filename() : fs::path();
}

bool is_term(const std::string& word) { return word.find_first_of(":=<>") != std::string::npos; }

}  // namespace

RunFilter filter_of(const std::vector<std::string>& words) {
  // The shell reads lr>1e-3 as the word lr and a redirection into the file 1e-3.
  if (!words.empty() && !is_term(words.back()))
    if (std::string file = redirected_to(); !file.empty() && filter_number(file.substr(file.starts_with('=') ? 1 : 0)))
      throw usage_error("the shell took `>{0}` as a redirection into the file {0}: quote the filter, as in '{1}>{0}'",
                        file, words.back());
  return parse_filter(join(words, " "));
}

std::vector<std::string> chosen_runs(const Ledger& ledger, const std::vector<std::string>& words) {
  std::vector<std::string> runs, terms;
  for (const auto& word : words) {
    if (is_term(word) || word.starts_with('!'))
      terms.push_back(word);
    else
      runs.push_back(ledger.find_run(word));
  }
  if (!terms.empty()) {
    const auto matching = ledger.runs(filter_of(terms));
    if (matching.empty()) throw usage_error("no run matches {}", join(terms, " "));
    for (const auto& run : matching) runs.push_back(run.id);
  }
  std::vector<std::string> once;
  for (const auto& run : runs)
    if (std::ranges::find(once, run) == once.end()) once.push_back(run);
  return once;
}

ExitCode edit_runs(const std::vector<std::string>& words, const RunEdit& edit, bool json) {
  Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto runs = chosen_runs(ledger, words);
  const int changed = ledger.edit(runs, edit, this_user());
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
