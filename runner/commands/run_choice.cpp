#include "runner/commands/run_choice.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/run_id.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/terminal.hpp"

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

std::vector<std::string> chosen_runs(const Ledger& ledger, const std::vector<std::string>& words, ChoiceFor what,
                                     const std::string& further) {
  std::vector<std::string> ids, terms;
  const auto add = [&](const std::string& id) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  };
  for (const auto& word : words) is_term(ledger, word) ? terms.push_back(word) : add(ledger.find_run(word));
  if (terms.empty()) return ids;
  const std::string filter = join(terms, " ");
  if (what == ChoiceFor::changing && !ids.empty())
    throw usage_error("name runs or give a filter, not both: `{}` is a filter, {} is a run", filter, ids.front());
  if (!further.empty()) terms.push_back(further);
  for (const auto& run : ledger.runs(filter_of(terms))) add(run.id);
  if (ids.empty()) throw usage_error("no run matches the filter `{}`; `runner ls` lists all", filter);
  return ids;
}

namespace {

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

}  // namespace

ExitCode edit_runs(const std::vector<std::string>& words, const RunEdit& edit, bool json, const std::string& further) {
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

std::vector<std::string> short_names(const Ledger& ledger, const std::vector<std::string>& ids) {
  std::map<std::string, std::string> names;
  std::map<std::string, int> count;
  for (const auto& id : ids) ++count[names[id] = one_line(ledger.row(id).name)];
  std::vector<std::string> out;
  for (const auto& id : ids) out.push_back(count[names[id]] > 1 ? names[id] + " " + id_end(id) : names[id]);
  return out;
}

std::string filter_help() {
  std::string text =
      "A filter is a list of terms; a run must fulfil all. Quote it, because the shell takes > and <:\n"
      "  'status:failed,lost tag:night since:7d'       fields, with one of several values\n"
      "  'optimizer.lr>1e-3 best(val_loss)<2'          recipe keys (lr is enough) and metrics\n"
      "  'name:gpt* -group:old \"words in the notes\"'   patterns; - negates; words are searched for\n"
      "  'sort:best(val_loss) limit:20'                the 20 best; sort:-best(val_accuracy): the greatest first\n"
      "Fields: ";
  std::vector<std::string> names;
  for (const auto& field : run_fields()) names.emplace_back(field.name);
  return text + join(names, ", ") +
         ". Times: 7d, 12h, 2026-11-20, today. Archived and deleted runs are listed with archived:yes and deleted:yes.";
}

void add_filter_option(CLI::App& app, std::vector<std::string>& words) {
  app.add_option("filter", words, "Only runs that match")->type_name("");
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
    if (std::string file = redirected_to();
        !file.empty() && parse_number<double>(file.substr(file.starts_with('=') ? 1 : 0)))
      throw usage_error("the shell took `>{0}` as a redirection into the file {0}: quote the filter, as in '{1}>{0}'",
                        file, words.back());
  return parse_filter(join(words, " "));
}

}  // namespace runner
