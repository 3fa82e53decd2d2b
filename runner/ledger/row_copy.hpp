// The rows of a run in all tables: copied from one attached database to another one with the same schema, compared, and deleted. Which
// tables and columns there are is read from the schema, so that tables which later migrations add are covered. Row numbers of runs,
// attempts and metric names differ between databases, and are translated.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

class RowCopy {
 public:
  /// `from`, `to`: names of attached databases ("main" is the ledger itself). All calls are in one transaction of the caller.
  /// `keep_numbers`: runs and attempts get the row numbers that they have in `from`, which must be free.
  RowCopy(sqlite::Database& database, std::string from, std::string to, bool keep_numbers = false);

  /// Copies a run with this row number, its attempts, points, events, artifacts and texts. Returns its new row number. Edges are
  /// copied once both runs are there.
  int64_t copy(int64_t run);
  /// Copies the edges of `run`, a row number in `from`, to runs that `to` has. `sources_only`: only those that say from what it started.
  void copy_edges(int64_t run, bool sources_only = false);
  /// If the run is a trial of a sweep: the trial, its sweep, and what the sweep's history has of it. `with_recipe`: also the recipe of the
  /// sweep's trials.
  void copy_trial(int64_t run, bool with_recipe = true);
  /// copy_trial() for a run that another ledger has recorded: a sweep that began in `to` stays as it is, and so do its trials and its
  /// history. In a sweep that came in this way before, what ended later replaces what is there. Only `runs`, a SELECT of row numbers in
  /// `to`, become trials. No process of this ledger runs the sweep.
  void copy_foreign_trial(int64_t run, const std::string& runs);
  /// Parts of copy(): the rows of one table, and the texts that they refer to. With `over`, rows that exist are replaced.
  void copy_table(const std::string& table, int64_t run, bool over = false);
  void copy_texts(const std::string& table, int64_t run);

 private:
  using Values = std::map<std::string, std::string>;  ///< {"table.column": SQL}, instead of the value in `from`
  std::string value_of(const std::string& table, const std::string& column) const;
  void copy_sweep_texts(int64_t run, bool with_recipe);
  void copy_rows(const std::string& table, int64_t run, const std::string& condition, const std::string& over,
                 const Values& instead);

  sqlite::Database& database_;
  std::string from_, to_;
  bool keep_numbers_;
};

/// Whether a sweep began in the ledger that has it, as a condition over rows of `sweep`. Sweeps of bundles have a
/// folder's name and no process.
inline constexpr const char* is_own_sweep = "(folder IS NULL OR host IS NOT NULL)";

/// Edits of what each ledger decides for itself, as a condition over rows of `change`.
inline constexpr const char* is_local_change = "what IN ('archived', 'deleted')";

/// A digest of everything that a ledger records of a run, which does not depend on row numbers, on the run's folder, or on what this
/// ledger alone knows of it (its trash, its archive, its imports).
std::string run_digest(sqlite::Database& database, const std::string& schema, int64_t run);

/// The differences between the records of one run in two attached databases: "tags, points (300 here, 200 there)".
std::string run_differences(sqlite::Database& database, const std::string& here, int64_t run_here,
                            const std::string& there, int64_t run_there);

// The tables and columns that belong to a run, read from the schema.

struct LedgerColumn {
  std::string name;
  bool row_number = false;  ///< the table's INTEGER PRIMARY KEY, which only this file knows
  std::string refers_to;    ///< run, key, attempt, config, ...: a row of that table; empty if it is a value
};

/// The stored columns of a table, without computed ones.
std::vector<LedgerColumn> table_columns(sqlite::Database& database, const std::string& table);

/// The tables whose rows belong to one run each: those that require a reference to it. `run` itself and `edge` are not in the list.
std::vector<std::string> tables_of_runs(sqlite::Database& database);

/// A column that refers to a row of another table.
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
