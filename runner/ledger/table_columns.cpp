#include "runner/ledger/table_columns.hpp"

#include <algorithm>
#include <array>

#include "runner/ledger/references.hpp"

namespace runner {

std::vector<LedgerColumn> table_columns(sqlite::Database& database, const std::string& table) {
  std::vector<LedgerColumn> columns;
  auto rows = database.query(
      "SELECT c.name, c.type = 'INTEGER' AND c.pk AND NOT t.wr AND (SELECT count(*) FROM pragma_table_info(?1) WHERE "
      "pk) = 1, "
      "ifnull((SELECT f.\"table\" FROM pragma_foreign_key_list(?1) AS f WHERE f.\"from\" = c.name), '') "
      "FROM pragma_table_list AS t, pragma_table_xinfo(?1) AS c WHERE t.schema = 'main' AND t.name = ?1 AND c.hidden = "
      "0 "
      "ORDER BY c.cid",
      table);
  while (rows.step()) {
    LedgerColumn column{.name = rows.text(0), .row_number = rows.integer(1) != 0, .refers_to = rows.text(2)};
    if (column.refers_to.empty() && !column.row_number)
      for (const char* undeclared : {"run", "key", "attempt", "sweep"})  // tables of points declare no references
        if (column.name == undeclared && table != undeclared) column.refers_to = undeclared;
    columns.push_back(std::move(column));
  }
  return columns;
}

std::vector<std::string> tables_of_runs(sqlite::Database& database) {
  std::vector<std::string> tables;
  for (const auto& reference : references_to(database, "run"))
    if (reference.required && reference.table != "edge" && std::ranges::find(tables, reference.table) == tables.end())
      tables.push_back(reference.table);
  // Attempts first: rows of other tables may refer to them.
  std::ranges::stable_partition(tables, [](const std::string& table) { return table == "attempt"; });
  return tables;
}

}  // namespace runner
