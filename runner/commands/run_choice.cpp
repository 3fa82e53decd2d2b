#include "runner/commands/run_choice.hpp"

#include <algorithm>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/run_id.hpp"

namespace runner {

namespace {

/// Whether a word is a term of the filter language and not the name of a run.
bool is_term(const Ledger& ledger, const std::string& word) {
  const bool operators = word.find_first_of(":<>=!(*") != std::string::npos;
  if (!operators && word != "not" && !(word.size() > 1 && word[0] == '-')) return false;
  return std::ranges::none_of(ledger.runs(), [&](const RunRow& run) { return run.name == word; });
}

/// The file that stdout goes to; empty if it is none.
fs::path redirected_to() {
  std::error_code error;
  const fs::path file = fs::read_symlink("/proc/self/fd/1", error);
  return !error && fs::is_regular_file(file, error) ? file.filename() : fs::path();
}

bool is_term(const std::string& word) { return word.find_first_of(":=<>") != std::string::npos; }

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
