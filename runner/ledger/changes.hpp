// The audit trail of edits to runs.
#pragma once
#include <optional>
#include <string>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// "user@host" of this process.
std::string this_user();

/// Adds a row to the audit trail, in the caller's transaction. `what`: the column of `run`; the values are as in the column, empty
/// for NULL.
void record_change(sqlite::Database& database, int64_t run, const std::string& what,
                   const std::optional<std::string>& before, const std::optional<std::string>& after);

}  // namespace runner
