// Filters on the command line.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runner/ledger/filter.hpp"

namespace runner {

/// Explains the language of filters in the help of a verb.
std::string filter_help();

/// The positional FILTER.
void add_filter_option(CLI::App& app, std::vector<std::string>& words);

/// The words as one filter. Throws FilterError; Error(usage) if the shell took part of a filter as a redirection.
RunFilter filter_of(const std::vector<std::string>& words);

}  // namespace runner
