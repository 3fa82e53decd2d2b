#include "runner/data/record_table.hpp"

#include <algorithm>
#include <map>

#include "runner/base/error.hpp"
#include "runner/data/records.hpp"

namespace runner {

namespace {

class RecordTable {
 public:
  explicit RecordTable(const TableReading& reading) : reading_(reading) {}

  void begin_file(const std::string& path) { table_.files.push_back({.path = path}); }

  void add(const JsonRecord& record) {
    for (const auto& [name, value] : record.items()) {
      auto& column = column_of(name);
      if (missing(value)) continue;
      if (column.numeric && (value.is_number() || value.is_boolean())) {
        fill(column);
        add_number(column, number(name, value), digits_beyond_double(value));
      } else {
        make_text(column);
        fill(column);
        column.texts.push_back(text(name, value));
      }
    }
    ++rows_;
    ++table_.files.back().rows;
  }

  Table take() {
    for (auto& column : table_.columns) fill(column);
    return std::move(table_);
  }

 private:
  TableColumn& column_of(const std::string& name) {
    const auto [found, added] = index_.emplace(name, table_.columns.size());
    if (added) {
      const bool as_text = std::ranges::find(reading_.as_text, name) != reading_.as_text.end();
      table_.columns.push_back({.name = name, .numeric = !as_text});
    }
    return table_.columns[found->second];
  }

  /// The rows since the last cell of a column have missing cells there.
  void fill(TableColumn& column) const {
    if (column.numeric)
      while (std::ssize(column.numbers) < rows_) add_number(column, std::nan(""));
    else
      column.texts.resize(static_cast<size_t>(rows_));
  }

  static void make_text(TableColumn& column) {
    if (!column.numeric) return;
    if (column.texts.empty())
      for (const double value : column.numbers) column.texts.push_back(std::isnan(value) ? "" : number_text(value));
    column.numbers.clear();
    column.numeric = false;
  }

  bool missing(const JsonRecord& value) const {
    if (value.is_null()) return true;
    if (!value.is_string()) return false;
    const auto& text = value.get_ref<const std::string&>();
    return text.empty() || std::ranges::find(reading_.missing_values, text) != reading_.missing_values.end();
  }

  static double number(const std::string& name, const JsonRecord& value) {
    const double number = value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>();
    if (!std::isfinite(number)) throw usage_error("column `{}`: a number must be finite", name);
    return number;
  }

  static std::string text(const std::string& name, const JsonRecord& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number()) return digits_of(value);
    if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
    throw usage_error("column `{}`: a cell of a table must be a number or a text, not {} {}", name,
                      value.is_array() ? "an" : "a", value.type_name());
  }

  const TableReading& reading_;
  Table table_ = {};
  std::map<std::string, size_t> index_ = {};
  int64_t rows_ = 0;
};

}  // namespace

Table read_record_table(const Recipe::Data& data, const std::vector<std::string>& files, const TableReading& reading) {
  RecordTable table(reading);
  for (const auto& file : files) {
    const auto records = open_records(data, file);
    table.begin_file(file);
    for (const auto& part : records->parts(size_t{64} << 20))
      records->for_each(part, [&](const JsonRecord& record, size_t) {
        table.add(record);
        return true;
      });
  }
  return table.take();
}

}  // namespace runner
