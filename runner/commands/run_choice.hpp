// The runs that a verb works on: named ones, or those that a filter finds.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"

namespace runner {

/// The positional `runs`: RUN ... or terms of a filter. Its default is the value of `words`; it is required if that is empty.
void add_runs_option(CLI::App& app, std::vector<std::string>& words);

/// The ids of the runs that the words name, each once, in their order. If a word is a term of the filter language, all are, and the
/// runs come in the order of `runner ls`; `further` is one more term then. Throws Error(usage) if there is no such run.
std::vector<std::string> chosen_runs(const Ledger& ledger, std::vector<std::string> words, const std::string& further = "");

/// Makes an edit of the chosen runs. Reports it on stderr, or with `json` as {changed, runs} on stdout.
ExitCode edit_runs(const std::vector<std::string>& words, const RunEdit& edit, bool json, const std::string& further = "");

}  // namespace runner
