// Names for runs whose recipe has none: "quiet-otter-12".
#pragma once
#include <string>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// A name that no run of the ledger has. The number is that of the run's row, which is about the number of runs so far.
std::string memorable_name(sqlite::Database& database);

}  // namespace runner
