// Filters on the command line, and verbs that take several runs.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"

namespace runner {

/// Explains the language of filters in the help of a verb.
extern const char* const filter_help;

/// The positional FILTER.
void add_filter_option(CLI::App& app, std::vector<std::string>& words);

/// The words as one filter. Throws FilterError; Error(usage) if the shell took part of a filter as a redirection.
RunFilter filter_of(const std::vector<std::string>& words);

/// The positional RUN..., each a run or a term of a filter. Its default is the value of `words`; it is required if that is empty.
void add_runs_option(CLI::App& app, std::vector<std::string>& words);

/// The ids of the runs that are named, and of those that match all terms. Throws Error(usage) if there are none.
std::vector<std::string> chosen_runs(const Ledger& ledger, const std::vector<std::string>& words);

/// Makes an edit, and reports it on stderr, or with `json` as {runs} on stdout.
ExitCode edit_runs(const std::vector<std::string>& words, const RunEdit& edit, bool json);

}  // namespace runner
