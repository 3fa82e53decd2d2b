// Which columns refer to a row of another table. It is read from the schema, so that whoever copies or deletes rows of a run
// also covers tables that later migrations add.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

struct ColumnReference {
  std::string table, column;
  bool required = false;  ///< the column may not be NULL
};

/// The columns that contain row numbers of `table` (or hashes of `config`): those with a declared foreign key, and integer
/// columns of its name in other tables, because tables of points declare no keys.
std::vector<ColumnReference> references_to(sqlite::Database& database, const std::string& table);

/// Deletes the rows of one run in all tables. Columns that may be NULL are set to NULL instead. Called in a transaction.
void delete_run_rows(sqlite::Database& database, int64_t run);

/// Columns with JSON in which the digests of texts of `config` stand: patches of the code, scripts of the recipe.
constexpr std::pair<const char*, const char*> json_with_digests[] = {
    {"run", "git"}, {"run", "annotations"}, {"attempt", "git"}};

/// A query of the digests in such a column. The caller may add a condition on `named`, the table.
std::string digests_in_json(const std::string& schema, const std::string& table, const std::string& column);

/// The texts of `config` that nothing refers to: an SQL condition on `hash`. None while a run is running.
std::string unreferenced_texts(sqlite::Database& database);

}  // namespace runner
