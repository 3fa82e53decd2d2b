#include "runner/ledger/references.hpp"

#include <algorithm>

namespace runner {

std::vector<ColumnReference> references_to(sqlite::Database& database, const std::string& table) {
  std::vector<ColumnReference> found;
  auto rows = database.query(
      "SELECT t.name, c.name, c.\"notnull\" OR c.pk FROM pragma_table_list AS t, pragma_table_info(t.name) AS c "
      "WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND ("
      "EXISTS (SELECT 1 FROM pragma_foreign_key_list(t.name) AS f WHERE f.\"table\" = ?1 AND f.\"from\" = c.name) "
      "OR (c.name = ?1 AND c.type = 'INTEGER' AND t.name <> ?1 "
      "    AND NOT EXISTS (SELECT 1 FROM pragma_foreign_key_list(t.name) AS f WHERE f.\"from\" = c.name))) "
      "ORDER BY t.name, c.cid",
      table);
  while (rows.step()) found.push_back({rows.text(0), rows.text(1), rows.integer(2) != 0});
  return found;
}

std::string digests_in_json(const std::string& schema, const std::string& table, const std::string& column) {
  return "SELECT tree.value FROM " + schema + "." + table + " AS named, json_tree(named." + column +
         ") AS tree WHERE tree.type = 'text' AND length(tree.value) = 32";
}

std::string unreferenced_texts(sqlite::Database& database) {
  // A text is kept before the row that names it: while a run is running, all texts may be needed.
  std::string condition = "NOT EXISTS (SELECT 1 FROM main.run WHERE status = 'running')";
  for (const auto& reference : references_to(database, "config"))
    condition += " AND hash NOT IN (SELECT " + reference.column + " FROM main." + reference.table + " WHERE " +
                 reference.column + " IS NOT NULL)";
  for (const auto& [table, column] : json_with_digests)
    condition += std::string(" AND hash NOT IN (") + digests_in_json("main", table, column) + ")";
  return condition;
}

void delete_run_rows(sqlite::Database& database, int64_t run) {
  // Rows that refer to rows of the run, like those of an attempt, are deleted before them.
  database.execute("PRAGMA defer_foreign_keys = ON");
  for (const auto& [table, column, required] : references_to(database, "run"))
    database.run((required ? "DELETE FROM " + table : "UPDATE " + table + " SET " + column + " = NULL") + " WHERE " +
                     column + " = ?",
                 run);
  database.run("DELETE FROM run WHERE run = ?", run);
}

}  // namespace runner
