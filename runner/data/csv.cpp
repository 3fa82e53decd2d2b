// The table format "csv".
#include <algorithm>
#include <memory>
#include <string_view>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/data/csv_reader.hpp"
#include "runner/data/table.hpp"

namespace runner {

namespace {

/// For each column of the table, the place of that column in this file.
std::vector<size_t> places_of(const std::string& path, const std::vector<std::string>& own, const Table& table) {
  std::vector<size_t> places;
  for (const auto& column : table.columns) {
    const auto found = std::ranges::find(own, column.name);
    if (found == own.end())
      throw usage_error("{} has no column `{}`, which {} has", path, column.name, table.files.front().path);
    places.push_back(static_cast<size_t>(found - own.begin()));
  }
  for (const auto& name : own)
    if (!table.find(name))
      throw usage_error("{} has a column `{}`, which {} does not have", path, name, table.files.front().path);
  return places;
}

/// The cells of a file, column by column.
struct CsvFile {
  std::unique_ptr<MappedFile> map;
  std::unique_ptr<CsvReader> records;
  std::vector<std::vector<std::string_view>> columns;
};

CsvFile read_file_of(const std::string& path, const TableReading& reading, Table& table) {
  CsvFile file;
  file.map = std::make_unique<MappedFile>(path);
  const auto bytes = file.map->bytes();
  file.records = std::make_unique<CsvReader>(
      path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), reading.delimiter,
      /*keeps_cells=*/true);
  const auto names = file.records->header();
  CsvLine record;
  if (table.files.empty())
    for (const auto& name : names) table.columns.push_back({.name = name});
  table.files.push_back({.path = path});
  const auto places = places_of(path, names, table);
  file.columns.resize(names.size());
  std::vector<std::string> mistakes;
  while (mistakes.size() < 10 && file.records->next(record)) {
    if (auto mistake = file.records->width_mistake(record, names.size()); !mistake.empty()) {
      mistakes.push_back(std::move(mistake));
      continue;
    }
    for (size_t c = 0; c < places.size(); ++c) file.columns[c].push_back(record.cells[places[c]]);
    table.lines.push_back(record.line);
    ++table.files.back().rows;
  }
  if (!mistakes.empty()) throw usage_error("{}", join(mistakes, "\n"));
  return file;
}

/// Converts the cells of one column of all files.
void convert(TableColumn& column, size_t index, const std::vector<CsvFile>& files, const TableReading& reading) {
  const auto is_missing = [&](std::string_view cell) {
    return cell.empty() || std::ranges::find(reading.missing_values, cell) != reading.missing_values.end();
  };
  column.decimal = reading.decimal;
  column.numeric = std::ranges::find(reading.as_text, column.name) == reading.as_text.end();
  for (const auto& file : files)
    for (const auto& cell : file.columns[index]) {
      if (!column.numeric) break;
      const auto number = cell_number(cell, reading.decimal);
      column.numeric = number || is_missing(cell);
      column.numbers.push_back(is_missing(cell) ? std::nan("") : number.value_or(0));
    }
  const bool target = std::ranges::find(reading.targets, column.name) != reading.targets.end();
  if (column.numeric && !target) return;
  if (!column.numeric) column.numbers.clear();
  for (const auto& file : files)
    for (const auto& cell : file.columns[index])
      column.texts.emplace_back(is_missing(cell) ? std::string_view()
                                : column.numeric ? class_text(cell, reading.decimal)
                                                 : cell);
  if (column.numeric) drop_spare_texts(column);
}

}  // namespace

Table read_csv(const std::vector<std::string>& paths, const TableReading& reading) {
  Table table;
  std::vector<CsvFile> files;
  for (const auto& path : paths) files.push_back(read_file_of(path, reading, table));
  for (size_t c = 0; c < table.columns.size(); ++c) convert(table.columns[c], c, files, reading);
  return table;
}

}  // namespace runner
