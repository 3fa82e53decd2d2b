// Lists runs: all of them, or those that match a filter.
#include <algorithm>
#include <limits>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/filter_sql.hpp"
#include "runner/ledger/ledger_impl.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// The columns of RunRow, with the last points of "loss" and of the metric named by checkpoint.monitor.
constexpr const char* row_columns =
    "run.run, run.id, run.name, strategy, started, ended, steps, tags, loss.run IS NOT NULL, loss.value, "
    "ifnull(message, ''), CASE WHEN status = 'failed' THEN ifnull(json_extract(annotations, "
    "'$.measured.failure.kind'), '') ELSE '' END, folder, "
    "monitor, monitored.run IS NOT NULL, monitored.value, "
    "(SELECT sum(max(0, attempt.ended - attempt.started)) FROM attempt WHERE attempt.run = run.run), "
    "(SELECT max(attempt.started) FROM attempt WHERE attempt.run = run.run AND attempt.ended IS NULL), "
    "grp, archived IS NOT NULL, deleted IS NOT NULL, ";
constexpr const char* row_tables =
    " FROM run LEFT JOIN metric_last AS loss ON loss.run = run.run "
    "AND loss.key = (SELECT key FROM key WHERE name = 'loss') "
    "LEFT JOIN metric_last AS monitored ON monitored.run = run.run "
    "AND monitored.key = (SELECT key FROM key WHERE name = run.monitor) ";
constexpr int status_column = 21, first_cell = 22;

/// RunRow::why, from the run's status and the message that its supervisor recorded.
std::string why_ended(const std::string& status, const std::string& message, const std::string& failure) {
  if (status == "running") return "";
  const std::string line = first_line(message);
  if (status == "lost") return line.empty() ? "its supervisor is gone" : line;
  return status == "failed" && !failure.empty() ? failure + ": " + line : line;
}

RunRow read_row(const sqlite::Statement& row, const std::map<int64_t, double>& lost, const fs::path& home) {
  RunRow run;
  run.id = row.text(1);
  run.name = row.text(2);
  run.status = row.text(status_column);
  run.strategy = row.text(3);
  run.started = row.real(4);
  run.ended = row.optional_real(5);
  run.steps = row.integer(6);
  run.tags = json::parse(row.text(7)).get<std::vector<std::string>>();
  if (row.integer(8)) run.final_loss = metric_value(row, 9);
  if (const auto found = lost.find(row.integer(0)); found != lost.end()) {
    run.status = "lost";
    run.ended = std::max(found->second, run.started);
  }
  run.why = why_ended(run.status, row.text(10), row.text(11));
  run.folder = (home / row.text(12)).string();
  const bool monitored = row.integer(14) != 0;
  run.metric = monitored ? row.text(13) : "loss";
  run.metric_value = monitored ? metric_value(row, 15) : run.final_loss;
  run.ended_attempts_seconds = row.is_null(16) ? 0 : row.real(16);
  run.open_attempt_started = row.optional_real(17);
  run.group = row.text(18);
  run.archived = row.integer(19) != 0;
  run.deleted = row.integer(20) != 0;
  return run;
}

/// A value of an expression: text, number, true or false, or a list.
json read_cell(const sqlite::Statement& row, int column, const RunExpression& expression) {
  if (row.is_null(column)) return nullptr;
  if (expression.kind == FieldKind::flag) return row.integer(column) != 0;
  if (expression.kind == FieldKind::list || !expression.json_path.empty()) return json::parse(row.text(column));
  switch (row.type(column)) {
    case SQLITE_INTEGER:
      return row.integer(column);
    case SQLITE_FLOAT:
      return json_number(row.real(column));
    default:
      return row.text(column);
  }
}

}  // namespace

double seconds_taken(const RunRow& row, double now) {
  if (row.started == 0) return std::numeric_limits<double>::quiet_NaN();
  double seconds = row.ended_attempts_seconds;
  if (row.open_attempt_started) seconds += std::max(0.0, row.ended.value_or(now) - *row.open_attempt_started);
  return seconds;
}

json to_json(const RunRow& row) {
  return {{"id", row.id},
          {"name", row.name},
          {"status", row.status},
          {"strategy", row.strategy},
          {"started", row.started > 0 ? json(row.started) : json()},
          {"ended", or_null(row.ended)},
          {"steps", row.steps},
          {"final_loss", row.final_loss ? json_number(*row.final_loss) : json(nullptr)},
          {"tags", row.tags},
          {"group", row.group},
          {"archived", row.archived},
          {"deleted", row.deleted},
          {"why", row.why},
          {"metric", row.metric},
          {"metric_value", row.metric_value ? json_number(*row.metric_value) : json(nullptr)},
          {"run_dir_exists", fs::exists(row.folder)}};
}

RunRow Ledger::Impl::row(int64_t number) const {
  auto rows =
      database->query(std::string("SELECT ") + row_columns + run_status_sql + row_tables + "WHERE run.run = ?", number);
  RUNNER_CHECK(rows.step());
  return read_row(rows, lost, home);
}

std::vector<RunRow> Ledger::runs() const { return runs(parse_filter("archived:any deleted:any")); }

std::vector<RunRow> Ledger::runs(const RunFilter& filter, const RunColumns& columns) const {
  std::vector<RunRow> runs;
  if (!impl_->database) return runs;
  FilterSql sql(*impl_->database, filter, impl_->lost);
  std::vector<RunExpression> expressions;
  std::string select = std::string("SELECT ") + row_columns + run_status_sql;
  for (const auto& column : columns.list) {
    const auto& expression = expressions.emplace_back(sql.expression(column, columns.text));
    select += ", " + (expression.cell_sql.empty() ? expression.sql : expression.cell_sql);
  }
  select += std::string(row_tables) + "WHERE " + sql.where() + " " + sql.order_by();
  sqlite::Statement rows(*impl_->database, select);
  sql.bind(rows);
  while (rows.step()) {
    auto& run = runs.emplace_back(read_row(rows, impl_->lost, impl_->home));
    for (size_t i = 0; i < expressions.size(); ++i)
      run.cells.push_back(read_cell(rows, first_cell + static_cast<int>(i), expressions[i]));
  }
  return runs;
}

}  // namespace runner
