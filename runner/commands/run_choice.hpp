// The runs that a verb works on: named ones, and those that a filter finds.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"

namespace runner {

/// The positional `runs`: names of runs and terms of a filter. Its default is the value of `words`; it is required if that is empty.
void add_runs_option(CLI::App& app, std::vector<std::string>& words);

/// The use that a verb makes of the runs. A verb that changes or removes runs takes names or a filter. It refuses both together, because
/// users could remove more runs than they expect.
enum class ChoiceFor { reading, changing };

/// The ids of the runs that the words name, in their order and each once, and after them those that the filter finds,
/// in the order of `runner ls`. A word with an operator of filters (`:<>=!(*`), the word `not`, and a word that begins
/// with "-" are terms of the filter, unless a run has that name. `further` is one more term, if there is a filter.
/// Throws Error(usage) if a word names no run, and if the filter finds none.
std::vector<std::string> chosen_runs(const Ledger& ledger, const std::vector<std::string>& words,
                                     ChoiceFor what = ChoiceFor::reading, const std::string& further = "");

/// Short names for runs in tables and legends: the run's name, with the last part of the id if several have it.
std::vector<std::string> short_names(const Ledger& ledger, const std::vector<std::string>& ids);

// Filters on the command line.

/// Explains the language of filters in the help of a verb.
std::string filter_help();

/// The positional FILTER.
void add_filter_option(CLI::App& app, std::vector<std::string>& words);

/// The words as one filter. Throws FilterError; Error(usage) if the shell took part of a filter as a redirection.
RunFilter filter_of(const std::vector<std::string>& words);

}  // namespace runner
