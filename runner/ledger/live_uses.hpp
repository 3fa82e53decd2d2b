// The uses of a run by running processes, so that nothing is taken away from under them.
#pragma once
#include <filesystem>
#include <string>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// Why the run with this row number must stay as it is now: it is running, it is a trial of a running sweep, a running run started
/// from it or reads its model, or a setting of a running run names a path in its folder. Empty if nothing uses it. `home`: the
/// ledger's folder. Runs whose supervisor is gone count as running until Ledger has marked them as lost.
std::string live_use_of(sqlite::Database& database, const std::filesystem::path& home, int64_t run);

/// The running run, other than `run` itself, whose settings name `path` or a path below it; empty if there is none.
std::string live_reader_of(sqlite::Database& database, const std::filesystem::path& path, int64_t run = 0);

}  // namespace runner
