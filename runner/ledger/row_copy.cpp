#include "runner/ledger/row_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

namespace {

/// Tables that are computed from others.
bool is_computed(const std::string& table) { return table == "metric_last" || table == "end_point"; }

/// Whether a column has what only one ledger knows of a run: merging neither compares nor copies it.
bool is_local(const std::string& table, const std::string& column) {
  return table == "imported" || (table == "run" && (column == "folder" || column == "deleted" || column == "archived"));
}

/// The SQL of a value that is the same in all ledgers, for a column that may contain a row number.
std::string portable(const std::string& schema, const std::string& table, const LedgerColumn& column) {
  const std::string name = table + "." + column.name;
  const auto looked_up = [&](const char* what, const char* in) {
    return fmt::format("(SELECT t.{} FROM {}.{} AS t WHERE t.{} = {})", what, schema, in, in, name);
  };
  if (column.refers_to == "run") return looked_up("id", "run");
  if (column.refers_to == "key") return looked_up("name", "key");
  if (column.refers_to == "attempt") return looked_up("number", "attempt");
  return name;
}

/// The rows of one run in a table, with portable values, in an order that does not depend on row numbers.
std::string portable_rows(sqlite::Database& database, const std::string& schema, const std::string& table) {
  std::vector<std::string> values;
  for (const auto& column : table_columns(database, table))
    if (!column.row_number && !is_local(table, column.name)) values.push_back(portable(schema, table, column));
  std::string order;
  for (size_t i = 1; i <= values.size(); ++i) order += (i > 1 ? ", " : "") + std::to_string(i);
  const std::string local = table == "change" ? fmt::format(" AND NOT {}", is_local_change) : "";
  return fmt::format("SELECT {0} FROM {1}.{2} AS {2} WHERE {2}.run = ?1{3} ORDER BY {4}", join(values, ", "), schema,
                     table, local, order);
}

/// Adds the row's values to `text`, each with its type and length, so that different rows give different texts.
void append_row(const sqlite::Statement& row, int columns, std::string& text) {
  for (int i = 0; i < columns; ++i) {
    text += static_cast<char>('0' + row.type(i));
    if (row.type(i) == SQLITE_FLOAT) {
      const double value = row.real(i);
      char bytes[sizeof value];
      std::memcpy(bytes, &value, sizeof value);
      text.append(bytes, sizeof bytes);
    } else if (!row.is_null(i)) {
      const std::string value = row.text(i);
      text += std::to_string(value.size()) + ":" + value;
    }
  }
  text += '\n';
}

int column_count(sqlite::Database& database, const std::string& table) {
  const auto columns = table_columns(database, table);
  return static_cast<int>(std::ranges::count_if(
      columns, [&](const LedgerColumn& column) { return !column.row_number && !is_local(table, column.name); }));
}

int64_t count_rows(sqlite::Database& database, const std::string& schema, const std::string& table, int64_t run) {
  return database.integer("SELECT count(*) FROM " + schema + "." + table + " WHERE run = ?", run);
}

}  // namespace

RowCopy::RowCopy(sqlite::Database& database, std::string from, std::string to, bool keep_numbers)
    : database_(database), from_(std::move(from)), to_(std::move(to)), keep_numbers_(keep_numbers) {}

std::string RowCopy::value_of(const std::string& table, const std::string& column) const {
  for (const auto& one : table_columns(database_, table)) {
    if (one.name != column) continue;
    const std::string old = "old." + column;
    if (one.refers_to == "run")
      return fmt::format("(SELECT b.run FROM {}.run AS b JOIN {}.run AS a ON a.id = b.id WHERE a.run = {})", to_, from_,
                         old);
    if (one.refers_to == "key")
      return fmt::format("(SELECT b.key FROM {}.key AS b JOIN {}.key AS a ON a.name = b.name WHERE a.key = {})", to_,
                         from_, old);
    if (one.refers_to == "sweep")
      return fmt::format("(SELECT b.sweep FROM {}.sweep AS b JOIN {}.sweep AS a ON a.id = b.id WHERE a.sweep = {})",
                         to_, from_, old);
    if (one.refers_to == "attempt")
      return fmt::format(
          "(SELECT b.attempt FROM {0}.attempt AS b JOIN {1}.attempt AS a ON a.number = b.number WHERE a.attempt = {2} "
          "AND b.run = (SELECT y.run FROM {0}.run AS y JOIN {1}.run AS x ON x.id = y.id WHERE x.run = a.run))",
          to_, from_, old);
    return old;
  }
  return "NULL";
}

void RowCopy::copy_texts(const std::string& table, int64_t run) {
  const auto copy_those = [&](const std::string& hashes) {
    database_.run(
        fmt::format(
            "INSERT OR IGNORE INTO {}.config (hash, content) SELECT hash, content FROM {}.config WHERE hash IN ({})",
            to_, from_, hashes),
        run);
  };
  for (const auto& column : table_columns(database_, table))
    if (column.refers_to == "config")
      copy_those(fmt::format("SELECT {} FROM {}.{} WHERE run = ?", column.name, from_, table));
  for (const auto& [with_digests, column] : json_with_digests)
    if (table == with_digests) copy_those(digests_in_json(from_, table, column) + " AND named.run = ?");
}

void RowCopy::copy_table(const std::string& table, int64_t run, bool over) {
  std::vector<std::string> names, values;
  bool has_key = false;
  for (const auto& column : table_columns(database_, table)) {
    if (column.row_number && !(keep_numbers_ && (table == "run" || table == "attempt"))) continue;
    names.push_back(column.name);
    values.push_back(value_of(table, column.name));
    has_key = has_key || column.refers_to == "key";
  }
  copy_texts(table, run);
  if (has_key)
    database_.run(
        fmt::format(
            "INSERT INTO {}.key (name) SELECT name FROM {}.key WHERE key IN (SELECT DISTINCT key FROM {}.{} WHERE "
            "run = ?) ON CONFLICT DO NOTHING",
            to_, from_, from_, table),
        run);
  database_.run(fmt::format("{} INTO {}.{} ({}) SELECT {} FROM {}.{} AS old WHERE old.run = ? ORDER BY old.{}",
                            over ? "INSERT OR REPLACE" : "INSERT", to_, table, join(names, ", "), join(values, ", "),
                            from_, table, table_columns(database_, table).front().name),
                run);
}

int64_t RowCopy::copy(int64_t run) {
  copy_table("run", run);
  const int64_t copied = database_.last_insert_rowid();
  for (const auto& table : tables_of_runs(database_)) copy_table(table, run);
  return copied;
}

void RowCopy::copy_edges(int64_t run, bool sources_only) {
  database_.run(
      fmt::format("INSERT OR IGNORE INTO {}.edge (source, target, kind) SELECT {}, {}, old.kind FROM {}.edge AS old "
                  "WHERE (old.target = ?1 OR (old.source = ?1 AND NOT ?2)) AND {} IS NOT NULL AND {} IS NOT NULL",
                  to_, value_of("edge", "source"), value_of("edge", "target"), from_, value_of("edge", "source"),
                  value_of("edge", "target")),
      run, sources_only);
}

/// Copies the rows of `table` for which `condition` holds. Where `over` holds, they replace those that are there.
void RowCopy::copy_rows(const std::string& table, int64_t run, const std::string& condition, const std::string& over,
                        const Values& instead) {
  std::vector<std::string> names, values, sets;
  for (const auto& column : table_columns(database_, table)) {
    if (column.row_number) continue;
    names.push_back(column.name);
    const auto other = instead.find(table + "." + column.name);
    values.push_back(other != instead.end() ? other->second : value_of(table, column.name));
    sets.push_back(column.name + " = excluded." + column.name);
  }
  const std::string conflict = over.empty() ? "NOTHING" : fmt::format("UPDATE SET {} WHERE {}", join(sets, ", "), over);
  database_.run(fmt::format("INSERT INTO {}.{} ({}) SELECT {} FROM {}.{} AS old WHERE {} ON CONFLICT DO {}", to_, table,
                            join(names, ", "), join(values, ", "), from_, table, condition, conflict),
                run);
}

void RowCopy::copy_sweep_texts(int64_t run, bool with_recipe) {
  const std::string own = fmt::format("(SELECT sweep FROM {}.trial WHERE run = ?1)", from_);
  if (!with_recipe)
    database_.run(fmt::format("INSERT OR IGNORE INTO {}.config (hash, content) VALUES (?, '')", to_), xxh3_hex(""));
  database_.run(
      fmt::format("INSERT OR IGNORE INTO {0}.config (hash, content) SELECT hash, content FROM {1}.config WHERE "
                  "hash IN (SELECT space FROM {1}.sweep WHERE sweep IN {2} UNION SELECT {3} FROM {1}.sweep "
                  "WHERE sweep IN {2})",
                  to_, from_, own, with_recipe ? "recipe" : "space"),
      run);
}

void RowCopy::copy_trial(int64_t run, bool with_recipe) {
  copy_sweep_texts(run, with_recipe);
  Values instead{{"sweep.folder", "'sweeps/' || old.id"}};
  if (!with_recipe) instead["sweep.recipe"] = fmt::format("'{}'", xxh3_hex(""));
  const std::string own = fmt::format("old.sweep IN (SELECT sweep FROM {}.trial WHERE run = ?1)", from_);
  copy_rows("sweep", run, own, "", instead);
  // All trials: without the others, a finished sweep would have one of six.
  copy_rows("trial", run, own, "excluded.run IS NOT NULL AND trial.run IS NULL", instead);
  copy_rows("sweep_history", run,
            fmt::format("(old.sweep, old.trial) IN (SELECT sweep, number FROM {}.trial WHERE run = ?1)", from_), "",
            instead);
}

void RowCopy::copy_foreign_trial(int64_t run, const std::string& runs) {
  // The folders and processes of a bundle are not believed, and a run here that it does not bring is not its trial.
  Values instead{{"sweep.folder", "'sweeps/' || old.id"},
                 {"sweep.status", "iif(old.status = 'running', 'interrupted', old.status)"},
                 {"sweep.ended", "iif(old.status = 'running', max(old.heartbeat, old.started), old.ended)"},
                 {"trial.status", "iif(old.status = 'running', 'waiting', old.status)"},
                 {"trial.run", fmt::format("(SELECT taken.run FROM ({}) AS taken WHERE taken.run = {})", runs,
                                           value_of("trial", "run"))}};
  for (const char* process : {"host", "machine", "boot_id", "pid_namespace", "pid", "process_start"})
    instead[std::string("sweep.") + process] = "NULL";
  const std::string trials_of_run = fmt::format("{}.trial WHERE run = ?1", from_),
                    foreign = fmt::format(
                        "IN (SELECT there.sweep FROM {0}.sweep AS there WHERE there.id NOT IN (SELECT "
                        "id FROM {1}.sweep WHERE {2}))",
                        from_, to_, is_own_sweep),
                    own = fmt::format("old.sweep IN (SELECT sweep FROM {}) AND old.sweep {}", trials_of_run, foreign);
  copy_sweep_texts(run, /*with_recipe=*/true);
  copy_rows("sweep", run, own, "excluded.ended > ifnull(sweep.ended, 0)", instead);
  copy_rows("trial", run, own,
            "excluded.run IS NOT NULL AND (trial.run IS NULL OR excluded.ended > ifnull(trial.ended, 0))", instead);
  copy_rows(
      "sweep_history", run,
      fmt::format("(old.sweep, old.trial) IN (SELECT sweep, number FROM {}) AND old.sweep {}", trials_of_run, foreign),
      "", instead);
}

namespace {

/// A digest of digests: the rows of a long run need not be in memory together.
std::string table_digests(sqlite::Database& database, const std::string& schema, const std::string& table,
                          int64_t run) {
  const int columns = column_count(database, table);
  if (columns == 0) return "";
  std::string digests, part = table + "\n";
  auto rows = database.query(portable_rows(database, schema, table), run);
  while (rows.step()) {
    append_row(rows, columns, part);
    if (part.size() < (1U << 20)) continue;
    digests += xxh3_hex(part);
    part.clear();
  }
  return digests + xxh3_hex(part);
}

/// The word that users know for a column of `run` or for a table.
std::string word_for(const std::string& name) {
  static const std::map<std::string, std::string> words = {{"grp", "group"},
                                                           {"argv", "command line"},
                                                           {"resolved", "resolved recipe"},
                                                           {"config", "settings"},
                                                           {"world_size", "number of ranks"},
                                                           {"working_directory", "working directory"},
                                                           {"build_id", "program"},
                                                           {"exit_code", "exit code"},
                                                           {"git", "code"},
                                                           {"metric", "points"},
                                                           {"change", "edits"},
                                                           {"event", "events"},
                                                           {"artifact", "artifacts"},
                                                           {"attempt", "attempts"},
                                                           {"system_sample", "readings of the machine"}};
  const auto found = words.find(name);
  return found == words.end() ? name : found->second;
}

}  // namespace

std::string run_digest(sqlite::Database& database, const std::string& schema, int64_t run) {
  auto tables = tables_of_runs(database);
  tables.push_back("run");
  std::ranges::sort(tables);
  std::string digests;
  for (const auto& table : tables) digests += table_digests(database, schema, table, run);
  return xxh3_hex(digests);
}

std::string run_differences(sqlite::Database& database, const std::string& here, int64_t run_here,
                            const std::string& there, int64_t run_there) {
  std::vector<std::string> found;
  for (const auto& column : table_columns(database, "run")) {
    if (column.row_number || is_local("run", column.name)) continue;
    const std::string differ =
        fmt::format("SELECT (SELECT {0} FROM {1}.run WHERE run = ?1) IS NOT (SELECT {0} FROM {2}.run WHERE run = ?2)",
                    column.name, here, there);
    if (database.integer(differ, run_here, run_there)) found.push_back(word_for(column.name));
  }
  for (const auto& table : tables_of_runs(database)) {
    if (is_local(table, "") || is_computed(table)) continue;
    const int64_t ours = count_rows(database, here, table, run_here),
                  theirs = count_rows(database, there, table, run_there);
    if (ours != theirs)
      found.push_back(fmt::format("{} ({} here, {} there)", word_for(table), ours, theirs));
    else if (table_digests(database, here, table, run_here) != table_digests(database, there, table, run_there))
      found.push_back("values of " + word_for(table));
  }
  return found.empty() ? "computed values" : join(found, ", ");
}

std::vector<LedgerColumn> table_columns(sqlite::Database& database, const std::string& table) {
  std::vector<LedgerColumn> columns;
  auto rows = database.query(
      "SELECT c.name, c.type = 'INTEGER' AND c.pk AND NOT t.wr AND (SELECT count(*) FROM pragma_table_info(?1) WHERE "
      "pk) = 1, ifnull((SELECT f.\"table\" FROM pragma_foreign_key_list(?1) AS f WHERE f.\"from\" = c.name), '') FROM "
      "pragma_table_list AS t, pragma_table_xinfo(?1) AS c WHERE t.schema = 'main' AND t.name = ?1 AND c.hidden = 0 "
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
