// Tables in Parquet files: the types of the file decide which columns have numbers.
#include <algorithm>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/records.hpp"
#include "runner/data/table_data.hpp"
#include "runner/parquet/module.hpp"

namespace runner {

namespace {

/// The columns of the first file. Throws Error(usage) if another file has others.
void take_columns(const std::string& path, const ParquetFile& file, const TableReading& reading, Table& table) {
  std::set<std::string> names;
  for (const auto& column : file.columns())
    if (!names.insert(column.name).second) throw usage_error("{}: two columns have the name `{}`", path, column.name);
  if (table.files.empty()) {
    for (const auto& column : file.columns()) table.columns.push_back({.name = column.name});
  } else {
    for (const auto& column : table.columns)
      if (!names.contains(column.name))
        throw usage_error("{}: there is no column `{}`, which {} has", path, column.name, table.files.front().path);
    if (names.size() != table.columns.size())
      throw usage_error("{}: there are {} columns, and {} has {}", path, names.size(), table.files.front().path,
                        table.columns.size());
  }
  table.index_columns();
  for (const auto& own : file.columns()) {
    auto& column = table.columns[table.indices.at(own.name)];
    column.numeric = column.numeric && own.number && !reading.as_text.contains(column.name);
  }
}

/// The text of a cell; empty: it is missing.
std::string text_cell(const nlohmann::ordered_json& value, const TableReading& reading, const std::string& place) {
  if (value.is_number_integer()) return value.dump();
  if (value.is_number()) return number_text(value.get<double>());
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (!value.is_string())
    throw usage_error("{}: a cell of a table must be a number or a text, not {}", place, value.type_name());
  const auto& text = value.get_ref<const std::string&>();
  return std::ranges::find(reading.missing_values, text) == reading.missing_values.end() ? text : "";
}

double number_cell(const nlohmann::ordered_json& value, const std::string& place) {
  const double number = value.is_boolean()  ? (value.get<bool>() ? 1.0 : 0.0)
                        : value.is_string() ? finite_number(value.get_ref<const std::string&>()).value_or(HUGE_VAL)
                                            : value.get<double>();
  if (std::isinf(number)) throw usage_error("{}: a number must be finite", place);
  return number;
}

void add_row(const ParquetRow& row, const TableReading& reading, const std::string& place, Table& table) {
  for (auto& column : table.columns) {
    const auto cell = row.find(column.name);
    const auto where = [&] { return fmt::format("{}, column `{}`", place, column.name); };
    if (column.numeric && cell == row.end())
      add_number(column, std::nan(""));
    else if (column.numeric)
      add_number(column, number_cell(*cell, where()),
                 cell->is_string() ? cell->get<std::string>() : digits_beyond_double(*cell));
    else
      column.texts.push_back(cell == row.end() ? "" : text_cell(*cell, reading, where()));
  }
}

/// Whether a column of a Parquet file had other cells in the training of a schema of version 1.
bool was_read_otherwise(const TableSchema& schema, const ParquetFile::Column& column) {
  const auto feature = std::ranges::find(schema.features, column.name, &TableSchema::Feature::column);
  const auto target = std::ranges::find(schema.targets, column.name, &TableSchema::Target::column);
  const bool is_feature = feature != schema.features.end(), is_target = target != schema.targets.end();
  const bool of_words = (is_feature && feature->categorical) || (is_target && !target->classes.empty());
  const bool in_seconds = column.type.find("[s") != std::string::npos;  // "duration[s]", "timestamp[s, tz=UTC]"
  const auto begins = [&](std::string_view type) { return column.type.starts_with(type); };
  if (in_seconds) return false;
  if (begins("duration[")) return is_feature || is_target;
  return of_words && (begins("float") || begins("halffloat") || begins("time"));
}

}  // namespace

Table read_parquet(const std::vector<std::string>& paths, const TableReading& reading) {
  Table table;
  std::vector<std::unique_ptr<ParquetFile>> files;
  for (const auto& path : paths) {
    files.push_back(load_parquet_module().open(path));
    take_columns(path, *files.back(), reading, table);
    table.files.push_back({.path = path});
  }
  FaultyRows faulty;
  bool more = true;
  for (size_t f = 0; f < files.size(); ++f)
    for (int64_t group = 0; more && group < files[f]->row_groups(); ++group)
      files[f]->for_each(group, [&](const ParquetRow& row) {
        const auto place = fmt::format("{}, row {}", paths[f], ++table.files[f].rows);
        try {
          add_row(row, reading, place, table);
        } catch (const Error& error) {
          faulty.add(error, [&] { return place; });
        }
        return more = !faulty.enough();
      });
  faulty.raise(/*all=*/more);
  return table;
}

std::string older_reading_note(const Recipe::Data& data, const nlohmann::json& learned,
                               const std::vector<std::string>& files) {
  if (!data.is_table() || data.is_plugin() || learned.is_null()) return "";
  const auto schema = TableSchema::from_json(learned);
  if (schema.version >= TableSchema::current_version) return "";
  std::vector<std::string> names;
  for (const auto& file : files) {
    if (lower(fs::path(file).extension().string()) != ".parquet") continue;
    const auto table = load_parquet_module().open(file);
    for (const auto& column : table->columns())
      if (was_read_otherwise(schema, column) && std::ranges::find(names, column.name) == names.end())
        names.push_back(column.name);
  }
  if (names.empty()) return "";
  return fmt::format(
      "an older runner trained this model and read {} of Parquet files in another way: durations are seconds now, and "
      "texts of numbers and times have no spare digits; train the model again",
      join(names, ", "));
}

}  // namespace runner
