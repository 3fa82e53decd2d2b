#include "runner/ledger/filter_sql.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using Relation = RunTerm::Relation;
using Kind = FieldKind;

bool is_pattern(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

/// For LIKE with ESCAPE '\'.
std::string escape_like(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '%' || c == '_' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

/// The signs of comparisons, in the order of Relation.
constexpr const char* signs[] = {"=", "=", "<", "<=", ">", ">="};

/// The column of metric_last for a function; "best" depends on the metric.
std::string metric_column(RunOperand::Of of, bool higher_is_better) {
  using Of = RunOperand::Of;
  if (of == Of::min || (of == Of::best && !higher_is_better)) return "min";
  if (of == Of::max || of == Of::best) return "max";
  return "value";
}

}  // namespace

FilterSql::FilterSql(sqlite::Database& database, const RunFilter& filter, const std::map<int64_t, double>& lost)
    : database_(database), filter_(filter), status_sql_(run_status_sql), now_(wall_seconds()) {
  std::vector<std::string> rows;
  for (const auto& [row, ended] : lost) rows.push_back(std::to_string(row));
  if (!rows.empty())
    status_sql_ = fmt::format("CASE WHEN run.run IN ({}) THEN 'lost' ELSE {} END", join(rows, ","), run_status_sql);
}

std::string FilterSql::parameter(SqlValue value) {
  values_.push_back(std::move(value));
  return "?" + std::to_string(values_.size());
}

void FilterSql::bind(sqlite::Statement& statement) const {
  for (size_t i = 0; i < values_.size(); ++i)
    std::visit([&](const auto& value) { statement.bind_at(static_cast<int>(i + 1), value); }, values_[i]);
}

void FilterSql::unknown(const RunOperand& operand, const std::string& text) {
  for (const std::string_view prefix : {"params.", "metrics.", "parameters.", "attributes.", "config.", "summary."})
    if (operand.name.starts_with(prefix))
      throw FilterError(
          text, operand.place,
          fmt::format("names have no \"{}\" in front: write \"{}\"", prefix, operand.name.substr(prefix.size())));
  if (operand.name.starts_with("tags.")) throw FilterError(text, operand.place, "tags have no values: write tag:NAME");
  const bool metric = operand.of != RunOperand::Of::name;
  auto known = database_.texts("SELECT name FROM key");
  if (!metric) {
    for (const auto& key : database_.texts("SELECT name FROM config_key")) {
      known.push_back(key);
      known.push_back(key.substr(key.rfind('.') + 1));
    }
    for (const auto& field : run_fields()) known.push_back(field.name);
    known.insert(known.end(), {"since", "before", "sort", "limit"});
  }
  const auto near = nearest(operand.name, known);
  throw FilterError(text, operand.place,
                    fmt::format("no run has {} \"{}\"{}", metric ? "a metric" : "a field, recipe key or metric",
                                operand.name, near ? fmt::format("; did you mean \"{}\"?", *near) : ""));
}

RunExpression FilterSql::named(const RunOperand& operand, const std::string& text) {
  if (const auto* field = find_run_field(operand.name))
    return {.sql = field->kind == Kind::status ? status_sql_ : field->sql, .kind = field->kind, .field = field};
  auto is_metric = database_.query("SELECT 1 FROM key WHERE name = ?", operand.name);
  const bool metric = is_metric.step();
  // A short name that is a metric, too, means a recipe key only if that is a number: `lr` does, but not `loss`.
  auto keys = database_.query(
      "SELECT name, path, name = ?1 AS exact FROM config_key WHERE (name = ?1 OR name LIKE ?2 ESCAPE '\\') AND "
      "(numeric OR name = ?1 OR NOT ?3) ORDER BY exact DESC, name",
      operand.name, "%." + escape_like(operand.name), metric);
  std::vector<std::string> names;
  std::string path;
  while (keys.step()) {
    if (names.empty()) path = keys.text(1);
    names.push_back(keys.text(0));
    if (keys.integer(2)) break;
  }
  if (names.size() > 1 && !metric)
    throw FilterError(text, operand.place,
                      fmt::format("\"{}\" is the end of several recipe keys: write {}", operand.name, join_or(names)));
  if (names.size() == 1) {
    const std::string place = parameter(path);
    return {.sql = fmt::format("(SELECT json_extract(content, {}) FROM config WHERE hash = run.config)", place),
            .kind = Kind::text,
            .json_path = path,
            .cell_sql = fmt::format("(SELECT content -> {} FROM config WHERE hash = run.config)", place)};
  }
  if (!metric) unknown(operand, text);
  return expression({.of = RunOperand::Of::last, .name = operand.name, .place = operand.place}, text);
}

RunExpression FilterSql::expression(const RunOperand& operand, const std::string& text) {
  if (operand.of == RunOperand::Of::name) return named(operand, text);
  auto key = database_.query("SELECT key, higher_is_better FROM key WHERE name = ?", operand.name);
  if (!key.step()) unknown(operand, text);
  const std::string points =
      fmt::format("FROM metric_last WHERE run = run.run AND key = {}", parameter(key.integer(0)));
  const std::string column = metric_column(operand.of, key.integer(1) != 0),
                    any = fmt::format("(SELECT {} {})", column, points),
                    exists = fmt::format("EXISTS (SELECT 1 {})", points);
  const std::string value =
      operand.of != RunOperand::Of::best
          ? any
          : fmt::format("(SELECT best FROM last_metrics WHERE last_metrics.run = run.id AND name = {})",
                        parameter(operand.name));
  return {.sql = value,
          .cell_sql = fmt::format("CASE WHEN {} THEN coalesce({}, {}, 'NaN') END", exists, value, any),
          .has_value_sql = exists};
}

double FilterSql::number(const RunExpression& expression, const std::string& value) const {
  if (expression.kind == Kind::time) return filter_time(value, now_).value_or(0);
  if (expression.kind == Kind::duration)
    if (const auto duration = parse_duration(value)) return static_cast<double>(duration->count());
  return parse_number<double>(value).value_or(std::nan(""));
}

std::string FilterSql::number_parameter(const RunExpression& expression, const std::string& value) {
  const auto whole = expression.kind == Kind::time ? std::nullopt : parse_number<int64_t>(value);
  return parameter(whole ? SqlValue(*whole) : SqlValue(number(expression, value)));
}

std::string FilterSql::text_matches(const std::string& sql, const std::string& value) {
  if (value == "none") return fmt::format("ifnull({}, '') = ''", sql);
  if (is_pattern(value)) return fmt::format("lower({}) GLOB {}", sql, parameter(lower(value)));
  return fmt::format("{} = {} COLLATE NOCASE", sql, parameter(value));
}

std::string FilterSql::key_matches(const RunExpression& expression, const std::string& value) {
  // json_each() has one row for a single value, and a row for each element of a list.
  std::string match =
      text_matches("CASE type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE CAST(value AS TEXT) END", value);
  if (parse_number<double>(value))
    match += fmt::format(" OR (type IN ('integer', 'real') AND value = {})", number_parameter(expression, value));
  if (value == "none") return fmt::format("{} IS NULL", expression.sql);
  return fmt::format("EXISTS (SELECT 1 FROM config, json_each(content, {}) WHERE hash = run.config AND ({}))",
                     parameter(expression.json_path), match);
}

std::string FilterSql::matches(const RunExpression& expression, const std::string& value) {
  const std::string& sql = expression.sql;
  if (!expression.json_path.empty()) return key_matches(expression, value);
  switch (expression.kind) {
    case Kind::list:
      if (value == "none") return fmt::format("json_array_length({}) = 0", sql);
      return fmt::format("EXISTS (SELECT 1 FROM json_each({}) WHERE {})", sql, text_matches("value", value));
    case Kind::words:
      if (value == "none") return fmt::format("ifnull({}, '') = ''", sql);
      return fmt::format("{} LIKE {} ESCAPE '\\'", sql, parameter("%" + escape_like(value) + "%"));
    case Kind::id: {
      if (value == "last" && expression.field->name == std::string("sweep"))
        return fmt::format("{} = (SELECT id FROM sweep ORDER BY started DESC, sweep DESC LIMIT 1)", sql);
      std::string match = text_matches(sql, value);
      if (expression.field->name_sql) match += " OR " + text_matches(expression.field->name_sql, value);
      if (value == "none" || is_pattern(value)) return match;
      return fmt::format("{0} OR {1} LIKE {2} ESCAPE '\\' OR {1} LIKE {3} ESCAPE '\\'", match, sql,
                         parameter(escape_like(value) + "%"), parameter("%" + escape_like(value)));
    }
    case Kind::flag:
      return value == "any" ? "1" : fmt::format("({}) = {}", sql, value == "yes");
    case Kind::text:
    case Kind::status:
      return text_matches(sql, value);
    case Kind::time:
      if (const auto span = filter_day(value, now_))
        return fmt::format("{0} >= {1} AND {0} < {2}", sql, parameter(span->first), parameter(span->second));
      return fmt::format("{} = {}", sql, parameter(number(expression, value)));
    default: {
      const double wanted = number(expression, value);
      if (!std::isnan(wanted)) return fmt::format("{} = {}", sql, number_parameter(expression, value));
      // The ledger has NULL for a point that is not a number.
      return expression.has_value_sql.empty() ? "0" : fmt::format("({} AND {} IS NULL)", expression.has_value_sql, sql);
    }
  }
}

std::string FilterSql::compares(const RunTerm& term, const RunExpression& expression) {
  const std::string right = number_parameter(expression, term.values[0]);
  std::string condition = fmt::format("{} {} {}", expression.sql, signs[static_cast<size_t>(term.relation)], right);
  // SQLite orders texts after all numbers.
  if (!expression.json_path.empty()) condition += fmt::format(" AND typeof({}) IN ('integer', 'real')", expression.sql);
  return condition;
}

std::string FilterSql::search(const std::string& word) {
  std::vector<std::string> parts;
  const std::string pattern =
      is_pattern(word) ? parameter("*" + lower(word) + "*") : parameter("%" + escape_like(word) + "%");
  for (const char* column : {"run.name", "run.id", "run.grp", "run.tags", "run.notes"})
    parts.push_back(is_pattern(word) ? fmt::format("lower({}) GLOB {}", column, pattern)
                                     : fmt::format("{} LIKE {} ESCAPE '\\'", column, pattern));
  return join(parts, " OR ");
}

std::string FilterSql::condition(const RunTerm& term) {
  std::string sql;
  if (term.operand.name.empty()) {
    sql = search(term.values[0]);
  } else {
    const RunExpression left = expression(term.operand, filter_.text);
    if (term.relation == Relation::one_of || term.relation == Relation::unequal) {
      std::vector<std::string> parts;
      for (const auto& value : term.values) parts.push_back(matches(left, value));
      sql = join(parts, " OR ");
      if (term.relation == Relation::unequal) sql = fmt::format("{} IS NOT NULL AND NOT ifnull({}, 0)", left.sql, sql);
    } else {
      sql = compares(term, left);
    }
  }
  return term.negated ? fmt::format("NOT ifnull({}, 0)", sql) : "(" + sql + ")";
}

std::string FilterSql::where() {
  std::vector<std::string> parts;
  for (const auto& term : filter_.terms) parts.push_back(condition(term));
  if (filter_.ids)
    parts.push_back(
        fmt::format("run.id IN (SELECT value FROM json_each({}))", parameter(json_text(nlohmann::json(*filter_.ids)))));
  const auto named = [&](const char* field) {
    return std::ranges::any_of(filter_.terms, [&](const auto& term) {
      return term.operand.of == RunOperand::Of::name && term.operand.name == field;
    });
  };
  // The trash has archived runs, too.
  if (!filter_.ids && !named("archived") && !named("deleted")) parts.emplace_back("run.archived IS NULL");
  if (!filter_.ids && !named("deleted")) parts.emplace_back("run.deleted IS NULL");
  std::string sql = join(parts, " AND ");
  auto newest = filter_.newest;
  if (filter_.order.empty() && filter_.limit) newest = std::min(*filter_.limit, newest.value_or(*filter_.limit));
  if (newest)
    sql = fmt::format("run.run IN (SELECT run.run FROM run WHERE {} ORDER BY run.started DESC, run.run DESC LIMIT {})",
                      sql, *newest);
  return sql;
}

std::string FilterSql::order_by() {
  std::vector<std::string> parts;
  for (const auto& order : filter_.order) {
    const RunExpression by = expression(order.operand, filter_.text);
    const bool text = by.field && by.kind != Kind::number && by.kind != Kind::time && by.kind != Kind::duration;
    // NULL: the run has no value, or the value is not a number.
    parts.push_back(fmt::format("{} IS NULL", by.sql));
    parts.push_back(fmt::format("{}{}{}", by.sql, text ? " COLLATE NOCASE" : "", order.descending ? " DESC" : ""));
  }
  parts.insert(parts.end(), {"run.started", "run.run"});
  std::string sql = "ORDER BY " + join(parts, ", ");
  if (filter_.limit && !filter_.order.empty()) sql += fmt::format(" LIMIT {}", *filter_.limit);
  return sql;
}

}  // namespace runner
