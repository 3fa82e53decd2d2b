// Errors of SQLite about files that are no ledgers: its own speak of ledgers, and of what users can do about a ledger.
#pragma once
#include <fmt/format.h>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// Calls `read`. An error of SQLite becomes Error with "FILE is not WHAT: ...", or what is wrong with the file.
template <typename Read>
auto reading_source(const std::filesystem::path& file, const std::string& what, Read&& read) {
  try {
    return read();
  } catch (const sqlite::Failure& failure) {
    switch (failure.primary()) {
      case SQLITE_NOTADB:
        throw usage_error("{} is not {}: it is not an SQLite database", file.string(), what);
      case SQLITE_ERROR:
        throw usage_error("{} is not {}: it does not have its tables", file.string(), what);
      case SQLITE_CORRUPT:
        throw usage_error("{} is damaged: SQLite cannot read it", file.string());
      case SQLITE_CONSTRAINT:
      case SQLITE_MISMATCH:  // the tables here do not take its rows
        throw usage_error("{} is damaged: {}", file.string(), failure.what());
      case SQLITE_CANTOPEN:
        throw environment_error("cannot read {}", file.string());
      default:
        throw environment_error("cannot read {}: {}", file.string(), sqlite3_errstr(failure.result()));
    }
  }
}

}  // namespace runner
