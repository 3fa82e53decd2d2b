// Tables whose rows are records: JSON objects with a value for each column, or texts with labels.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/records.hpp"
#include "runner/data/table.hpp"

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
    table_.index_columns();
    return std::move(table_);
  }

 private:
  TableColumn& column_of(const std::string& name) {
    const auto [found, added] = index_.emplace(name, table_.columns.size());
    if (added) {
      table_.columns.push_back({.name = name, .numeric = !reading_.as_text.contains(name)});
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

/// Collects the cells of one column.
class LabelColumn {
 public:
  explicit LabelColumn(std::string name) : name_(std::move(name)) {}

  void add(const Recipe::Data& data, const JsonRecord& record) {
    const auto cell = record.find(name_);
    found_ |= cell != record.end();
    decimal_ = decimal_of(data);
    add_text(cell == record.end() || cell->is_null() ? std::string() : text_of(data, *cell));
  }
  bool found() const { return found_; }
  const std::string& name() const { return name_; }

  TableColumn finish() {
    TableColumn column{.name = name_,
                       .numeric = numeric_,
                       .numbers = std::move(numbers_),
                       .texts = std::move(texts_),
                       .decimal = decimal_};
    if (!numeric_) column.numbers = {};
    if (!numeric_) return column;
    for (auto& text : column.texts)
      if (const auto own = class_text(text, decimal_); own != text) text = std::string(own);
    drop_spare_texts(column);
    return column;
  }

 private:
  /// A number of a CSV file is a text, too.
  std::string text_of(const Recipe::Data& data, const JsonRecord& cell) {
    if (cell.is_boolean()) return cell.get<bool>() ? "true" : "false";
    if (cell.is_number() && data.target_type == "number") return number_text(cell.get<double>());
    if (cell.is_number()) return digits_of(cell);
    if (!cell.is_string())
      throw usage_error("the label `{}` must be a text or a number, not {}", name_,
                        cell.is_array() ? "a list" : cell.type_name());
    const auto& text = cell.get_ref<const std::string&>();
    if (std::ranges::find(data.missing_values, text) != data.missing_values.end()) return "";
    quoted_ |= data.format != "csv" && !text.empty();
    return text;
  }
  void add_text(std::string text) {
    const auto number = cell_number(text, decimal_);
    numeric_ = numeric_ && !quoted_ && (number || text.empty());
    if (numeric_) numbers_.push_back(text.empty() ? std::nan("") : *number);
    texts_.push_back(std::move(text));
  }

  std::string name_;
  char decimal_ = '.';
  bool numeric_ = true, found_ = false;
  bool quoted_ = false;  ///< a label is a text although it may look like a number
  std::vector<double> numbers_;
  std::vector<std::string> texts_;
};

/// Where the records of each file end, for messages.
struct RecordPlaces {
  std::vector<std::unique_ptr<Records>> files = {};
  std::vector<std::vector<size_t>> ends = {};

  std::string place(int64_t row) const {
    size_t file = 0;
    while (row >= std::ssize(ends[file])) row -= std::ssize(ends[file++]);
    return files[file]->place_of(ends[file][static_cast<size_t>(row)]);
  }
};

[[noreturn]] void refuse_column(const std::string& name, const std::string& file,
                                const std::vector<std::string>& there) {
  if (there.empty()) throw usage_error("data.train: {} has no record", file);
  const auto near = nearest(name, there);
  throw usage_error("data.target: {} has no column `{}`{}; its records have {}", file, name,
                    near ? fmt::format(" (did you mean `{}`?)", *near) : "", join(there, ", "));
}

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

Table read_label_table(const std::vector<LabelFile>& files) {
  Table table;
  std::vector<LabelColumn> columns;
  for (const auto& name : files.at(0).data->target) columns.emplace_back(name);
  std::vector<std::string> there;
  const auto places = std::make_shared<RecordPlaces>();
  for (const auto& [data, file] : files) {
    const auto& records = places->files.emplace_back(open_records(*data, file));
    auto& ends = places->ends.emplace_back();
    for (const auto& part : records->parts(SIZE_MAX))
      records->for_each(part, [&](const JsonRecord& record, size_t end) {
        if (there.empty())
          for (const auto& [key, value] : record.items()) there.push_back(key);
        for (auto& column : columns) column.add(*data, record);
        ends.push_back(end);
        return true;
      });
    table.files.push_back({.path = file, .rows = std::ssize(ends)});
  }
  for (auto& column : columns) {
    if (!column.found()) refuse_column(column.name(), files.front().path, there);
    table.columns.push_back(column.finish());
  }
  table.placed = [places](int64_t row) { return places->place(row); };
  return table;
}

}  // namespace runner
