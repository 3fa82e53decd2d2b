// The runs that a verb works on: named ones, or those that a filter finds.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"

namespace runner {

/// The required positional `runs`: RUN ... or terms of a filter.
void add_runs_option(CLI::App& app, std::vector<std::string>& words);

/// The ids of the runs that the words name, each once, in their order. If a word is a term of the filter language, all are, and the
/// runs come in the order of `runner ls`. Throws Error(usage) if there is no such run.
std::vector<std::string> chosen_runs(const Ledger& ledger, const std::vector<std::string>& words);

}  // namespace runner
