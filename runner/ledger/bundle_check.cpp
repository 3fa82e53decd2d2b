#include "runner/ledger/bundle_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"

namespace runner {

namespace {

/// A column whose texts are JSON, and what they may be. `refers`: it has digests of texts in the table config.
struct JsonColumn {
  const char *table, *column;
  enum class Shape { object, object_or_null, texts } shape = Shape::object;
  bool refers = false;
};
constexpr JsonColumn json_columns[] = {
    {.table = "run", .column = "tags", .shape = JsonColumn::Shape::texts},
    {.table = "run", .column = "argv", .shape = JsonColumn::Shape::texts},
    {.table = "run", .column = "git", .shape = JsonColumn::Shape::object_or_null},
    {.table = "run", .column = "host", .shape = JsonColumn::Shape::object_or_null},
    {.table = "run", .column = "annotations"},
    {.table = "run", .column = "config", .refers = true},
    {.table = "run", .column = "origins", .shape = JsonColumn::Shape::object_or_null, .refers = true},
    {.table = "run", .column = "plan", .shape = JsonColumn::Shape::object_or_null, .refers = true},
    {.table = "event", .column = "fields"},
    {.table = "artifact", .column = "fields"},
    {.table = "attempt", .column = "argv", .shape = JsonColumn::Shape::texts},
    {.table = "attempt", .column = "git", .shape = JsonColumn::Shape::object_or_null},
    {.table = "attempt", .column = "config", .refers = true},
    {.table = "sweep", .column = "space", .refers = true},
    {.table = "trial", .column = "parameters"},
    {.table = "sweep_history", .column = "entry"},
};

bool has_shape(JsonColumn::Shape shape, const nlohmann::json& value) {
  switch (shape) {
    case JsonColumn::Shape::texts:
      return value.is_array() && std::ranges::all_of(value, [](const auto& item) { return item.is_string(); });
    case JsonColumn::Shape::object_or_null:
      return value.is_object() || value.is_null();
    default:
      return value.is_object();
  }
}

}  // namespace

void check_bundle_tables(sqlite::Database& database, const std::string& name) {
  auto odd = database.query(
      "SELECT name FROM pragma_table_list WHERE schema = 'bundle' AND type <> 'table' AND (name COLLATE NOCASE IN "
      "(SELECT name FROM main.sqlite_schema WHERE type = 'table') OR name COLLATE NOCASE IN ('bundled', "
      "'bundled_file', 'bundled_part'))");
  if (odd.step()) throw environment_error("the bundle {} is damaged: {} is no table", name, odd.text(0));
}

void check_bundle_json(sqlite::Database& database, const std::string& name) {
  for (const auto& [table, column, shape, refers] : json_columns) {
    auto texts = database.query(
        refers ? fmt::format("SELECT ifnull(content, '') FROM bundle.{0} LEFT JOIN bundle.config ON hash = {0}.{1} "
                             "WHERE {0}.{1} IS NOT NULL",
                             table, column)
               : fmt::format("SELECT {1} FROM bundle.{0} WHERE {1} IS NOT NULL", table, column));
    while (texts.step())
      if (!has_shape(shape, foreign_json(texts.text(0))))
        throw environment_error("the bundle {} is damaged: {}.{} has a text that is no JSON {}", name, table, column,
                                shape == JsonColumn::Shape::texts ? "list of texts" : "object");
  }
}

}  // namespace runner
