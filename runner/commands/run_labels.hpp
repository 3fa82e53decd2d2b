// Short names of runs for tables and legends.
#pragma once
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"

namespace runner {

/// The name of each run, with the last part of its id if several have it.
std::vector<std::string> run_labels(const Ledger& ledger, const std::vector<std::string>& ids);

}  // namespace runner
