#include "runner/commands/filter_words.hpp"

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"

namespace runner {

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
    if (std::string file = redirected_to(); !file.empty() && filter_number(file.substr(file.starts_with('=') ? 1 : 0)))
      throw usage_error("the shell took `>{0}` as a redirection into the file {0}: quote the filter, as in '{1}>{0}'",
                        file, words.back());
  return parse_filter(join(words, " "));
}

}  // namespace runner
