// Bringing a ledger file to this program's schema. schemas/ledger/NNN_name.sql are embedded at build time, in order.
#pragma once
#include <span>

#include "runner/ledger/sqlite.hpp"

namespace runner {

struct Migration {
  const char* name;  ///< "001_runs"
  const char* sql;
};

/// All of them: element i takes a file from version i (PRAGMA user_version) to i + 1.
std::span<const Migration> migrations();

/// "RUNR", in the header of every ledger file.
constexpr int64_t ledger_application_id = 0x52554e52;

/// The version of the file's schema; 0 = an empty file. Throws Error(environment) when the file is another program's
/// database, or when its schema is newer than `list`.
int64_t schema_version(sqlite::Database& database, std::span<const Migration> list = migrations());

/// Applies what is missing, all in one transaction: a failure or a kill leaves the file as it was. Several processes
/// may do this at once on a new file.
void migrate(sqlite::Database& database, std::span<const Migration> list = migrations());

}  // namespace runner
