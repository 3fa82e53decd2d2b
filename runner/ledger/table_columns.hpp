// The tables and columns that belong to a run, read from the schema.
#pragma once
#include <string>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

struct LedgerColumn {
  std::string name;
  bool row_number = false;  ///< the table's INTEGER PRIMARY KEY, which only this file knows
  std::string refers_to;    ///< run, key, attempt, config, ...: a row of that table; empty if it is a value
};

/// The stored columns of a table, without computed ones.
std::vector<LedgerColumn> table_columns(sqlite::Database& database, const std::string& table);

/// The tables whose rows belong to one run each: those that require a reference to it. `run` itself and `edge` are not in the list.
std::vector<std::string> tables_of_runs(sqlite::Database& database);

}  // namespace runner
