#include "runner/data/table_data.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/data/data.hpp"
#include "runner/data/order.hpp"
#include "runner/data/plugin/source.hpp"
#include "runner/data/records.hpp"
#include "runner/data/row_targets.hpp"
#include "runner/data/source_files.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

namespace {

TableReading reading_of(const Recipe::Data& data) {
  return {.as_text = {data.categorical.begin(), data.categorical.end()},
          .targets = data.target,
          .missing_values = data.missing_values,
          .delimiter = data.delimiter,
          .decimal = decimal_of(data)};
}

Table read_labels(const Recipe::Data& data, const std::vector<std::string>& files) {
  std::vector<LabelFile> list;
  for (const auto& file : files) list.push_back({.data = &data, .path = file});
  return read_label_table(list);
}

/// The labels of all sources, and the first row of each.
Table read_labels(const std::vector<DataSource>& sources, std::vector<int64_t>& firsts) {
  std::vector<LabelFile> list;
  for (const auto& source : sources)
    for (const auto& file : source.data.train) list.push_back({.data = &source.data, .path = file});
  auto table = read_label_table(list);
  int64_t row = 0;
  size_t file = 0;
  for (const auto& source : sources) {
    firsts.push_back(row);
    for (size_t i = 0; i < source.data.train.size(); ++i) row += table.files[file++].rows;
  }
  return table;
}

Table read_table(const Recipe::Data& data, const std::vector<std::string>& files) {
  if (data.is_plugin()) return read_record_table(data, files, reading_of(data));
  return data.format == "parquet" ? read_parquet(files, reading_of(data)) : read_csv(files, reading_of(data));
}

/// The format that the names of the files say. Throws Error(usage) if they say several.
std::string format_of(const std::vector<std::string>& files) {
  const auto format = [](const std::string& file) -> std::string {
    const auto end = lower(fs::path(file).extension().string());
    return end == ".parquet" ? "parquet" : end == ".jsonl" || end == ".ndjson" || end == ".json" ? "jsonl" : "csv";
  };
  for (const auto& file : files)
    if (format(file) != format(files.front()))
      throw usage_error("{} is read as {}, and {} as {}: the rows of one table need files of one format", files.front(),
                        format(files.front()), file, format(file));
  return format(files.front());
}

/// A table that others than the training data are in. The names of the files say what they are.
Table read_other_table(const Recipe::Data& data, const std::vector<std::string>& files, const TableSchema& schema) {
  if (data.labels_texts()) return read_labels(data, files);
  auto reading = reading_of(data);
  const auto texts = schema.text_columns();
  reading.as_text.insert(texts.begin(), texts.end());
  auto records = data;
  if (!data.is_plugin()) records.format = format_of(files);
  if (data.is_plugin() || records.format == "jsonl") return read_record_table(records, files, reading);
  return records.format == "parquet" ? read_parquet(files, reading) : read_csv(files, reading);
}

void check_table_files(const Recipe::Data& data, const std::string& key, const std::vector<std::string>& files) {
  data.is_plugin() ? check_source_paths(key, files) : check_source_files(key, files);
}

std::vector<int64_t> all_rows(const Table& table) {
  std::vector<int64_t> rows(static_cast<size_t>(table.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// Divides the rows of each source.
void divide_rows(TrainingTable& table, const std::vector<DataSource>& sources, double fraction) {
  const auto all = std::move(table.rows);
  table.rows.clear();
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string what = sources[i].name.empty() ? "rows" : fmt::format("rows of source \"{}\"", sources[i].name);
    for (const auto split : {Split::train, Split::validation}) {
      auto part = table.of_source(all, i);
      keep_random_part(part, fraction, split, what);
      auto& rows = split == Split::train ? table.rows : table.validation_rows;
      rows.insert(rows.end(), part.begin(), part.end());
    }
  }
}

TrainingTable learn(const Recipe::Data& data) {
  TrainingTable learned;
  const auto sources = sources_of(data);
  if (data.labels_texts())
    learned.table = read_labels(sources, learned.firsts);
  else
    learned = {.table = read_table(data, data.train), .firsts = {0}};
  learned.rows = all_rows(learned.table);
  for (const auto& name : data.target)
    if (!learned.table.find(name)) learn_schema(data, learned.table, {});  // throws
  leave_out_missing(data, learned.table, learned.rows);
  for (size_t i = 0; i < sources.size(); ++i)
    if (learned.of_source(learned.rows, i).empty())
      throw usage_error("data.train: {} has no usable row", sources[i].data.train.front());
  if (const auto fraction = data.validation_fraction) divide_rows(learned, sources, *fraction);
  learned.schema = learn_schema(data, learned.table, learned.rows);
  return learned;
}

/// The category of a cell: that of its text, or of the number in it. Runs of older versions have learned texts only.
std::optional<int32_t> category_of(const std::map<std::string, int32_t>& index, const TableColumn& column, size_t row) {
  const auto text = cell_text(column, row);
  auto found = index.find(text);
  if (found == index.end()) found = index.find(std::string(class_text(text, column.decimal)));
  return found == index.end() ? std::nullopt : std::optional(found->second);
}

/// How many cells of the rows have a category that the training rows do not have, for a message; empty: none has.
std::string unknown_categories(const TableSchema& schema, const Table& table, const std::vector<int64_t>& rows) {
  int64_t count = 0;
  for (const auto& feature : schema.features) {
    if (!feature.categorical) continue;
    const auto& column = column_of(table, feature.column);
    const auto index = class_indices(feature.categories);
    for (const auto row : rows) count += !category_of(index, column, static_cast<size_t>(row));
  }
  return count == 0 ? "" : fmt::format("{} with a category that the training data do not have", counted(count, "cell"));
}

/// Keeps what was made last, and returns it again for the same settings.
template <typename Value>
class LastMade {
 public:
  template <typename Make>
  std::shared_ptr<const Value> get(const nlohmann::json& settings, const Make& make) {
    std::lock_guard lock(mutex_);
    if (const auto text = settings.dump(); !value_ || text != settings_) {
      value_ = std::make_shared<const Value>(make());
      settings_ = text;
    }
    return value_;
  }

 private:
  std::mutex mutex_;
  std::string settings_;
  std::shared_ptr<const Value> value_;
};

/// The settings that decide what is read from the files of a table and what is learned from it.
nlohmann::json reading_settings(const Recipe::Data& data) {
  return {data.is_plugin() ? plugin_identity(data) : nlohmann::json(),
          data.format,
          data.objective,
          data.labels,
          data.target,
          data.target_type,
          data.drop,
          data.categorical,
          data.missing,
          data.missing_values,
          data.standardize,
          data.standardize_target.value_or(data.standardize),
          data.delimiter,
          data.decimal};
}

/// validation_table() of data that are a table. The result of the last call is kept.
std::shared_ptr<const ValidationTable> kept_validation(const Recipe::Data& data, const TableSchema& schema) {
  check_table_files(data, "data.validation", data.validation);
  static LastMade<ValidationTable> last;
  return last.get({reading_settings(data), fingerprint(data.validation), schema.text_columns()},
                  [&] { return validation_table(data, schema); });
}

std::string unknown_in_validation(const Recipe::Data& data, const TableSchema& schema) {
  const auto validation = kept_validation(data, schema);
  return unknown_categories(schema, validation->table, validation->rows);
}

/// The values of a column for each row of the data set.
struct EncodedFeature {
  int64_t first = 0;                     ///< index of its first feature
  std::vector<float> numbers = {};       ///< standardized
  std::vector<bool> missing = {};        ///< empty: no feature marks missing cells
  std::vector<int32_t> categories = {};  ///< -1: none of the training data
};

class TableDataset final : public Dataset {
 public:
  /// Without `targets`, those of all rows do not count.
  TableDataset(const Recipe::Data& data, const Table& table, const std::vector<int64_t>& rows, TableSchema schema,
               bool targets = true)
      : schema_(std::move(schema)),
        size_(std::ssize(rows)),
        inputs_(schema_.inputs()),
        targets_(targets ? RowTargets(data, table, rows, schema_) : RowTargets(schema_)) {
    int64_t first = 0;
    for (const auto& feature : schema_.features) {
      features_.push_back(encode(feature, table, column_of(table, feature.column), rows));
      features_.back().first = first;
      first += feature.width();
    }
  }

  int64_t size() const override { return size_; }
  std::string describe() const override {
    return fmt::format("{} of {}", counted(size_, "row"), counted(inputs_, "feature"));
  }
  std::vector<BatchField> fields() const override { return {features_field(inputs_), targets_.field()}; }
  int64_t weight(int64_t) const override { return 1; }
  nlohmann::json learned() const override { return schema_.to_json(); }

  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    const auto at = static_cast<size_t>(sample);
    const auto values = batch.row<float>(row_field::input, row);
    std::ranges::fill(values, 0.0f);
    for (const auto& feature : features_) {
      const auto first = static_cast<size_t>(feature.first);
      if (!feature.categories.empty()) {
        if (const auto category = feature.categories[at]; category >= 0)
          values[first + static_cast<size_t>(category)] = 1;
        continue;
      }
      values[first] = feature.numbers[at];
      if (!feature.missing.empty()) values[first + 1] = feature.missing[at] ? 1.0f : 0.0f;
    }
    targets_.write(at, batch, row_field::target, row);
  }

 private:
  static EncodedFeature encode(const TableSchema::Feature& feature, const Table& table, const TableColumn& column,
                               const std::vector<int64_t>& rows) {
    EncodedFeature encoded;
    std::vector<int64_t> refused;  // rows
    if (!feature.categorical) {
      for (const auto row : rows) {
        const bool missing = column.missing(static_cast<size_t>(row));
        const auto given = missing ? std::optional(feature.fill) : number_in(column, row);
        if (!given) refused.push_back(row);
        const double number = given.value_or(feature.mean);
        encoded.numbers.push_back(standardized(table, column, row, number, feature.mean, feature.scale));
        if (feature.marks_missing) encoded.missing.push_back(missing);
      }
      if (refused.empty()) return encoded;
      const auto& text = column.texts[static_cast<size_t>(refused.front())];
      throw usage_error("{}: `{}` is `{}`, and the training data have numbers in this column{}{}",
                        table.place(refused.front()), column.name, text, and_more(table, refused),
                        decimal_hint(text, column.decimal));
    }
    const auto index = class_indices(feature.categories);
    for (const auto row : rows)
      encoded.categories.push_back(category_of(index, column, static_cast<size_t>(row)).value_or(-1));
    return encoded;
  }

  TableSchema schema_;
  int64_t size_, inputs_;
  std::vector<EncodedFeature> features_;
  RowTargets targets_;
};

}  // namespace

std::vector<int64_t> TrainingTable::of_source(const std::vector<int64_t>& rows, size_t source) const {
  const auto begin = std::ranges::lower_bound(rows, firsts.at(source));
  const auto end = source + 1 < firsts.size() ? std::ranges::lower_bound(rows, firsts[source + 1]) : rows.end();
  return {begin, end};
}

std::shared_ptr<const TrainingTable> training_table(const Recipe::Data& data) {
  auto files = nlohmann::json::array();
  for (const auto& source : sources_of(data)) {
    check_table_files(data, "data.train", source.data.train);
    files.push_back({fingerprint(source.data.train), source.data.format});
  }
  static LastMade<TrainingTable> last;
  return last.get({reading_settings(data), files, data.validation_fraction.value_or(0)}, [&] { return learn(data); });
}

std::unique_ptr<Dataset> open_table(const Recipe::Data& data, Split split, const nlohmann::json& learned) {
  if (split == Split::validation && data.validation.empty() && !data.validation_fraction) return nullptr;
  const bool own_files = split == Split::validation && !data.validation.empty();
  const auto training = own_files && !learned.is_null() ? nullptr : training_table(data);
  auto schema = learned.is_null() ? training->schema : TableSchema::from_json(learned);
  if (!own_files)
    return std::make_unique<TableDataset>(
        data, training->table, split == Split::train ? training->rows : training->validation_rows, std::move(schema));
  const auto validation = kept_validation(data, schema);
  return std::make_unique<TableDataset>(data, validation->table, validation->rows, std::move(schema));
}

ValidationTable validation_table(const Recipe::Data& data, const TableSchema& schema) {
  check_table_files(data, "data.validation", data.validation);
  ValidationTable validation{.table = read_other_table(data, data.validation, schema)};
  validation.rows = all_rows(validation.table);
  leave_out_missing(data, validation.table, validation.rows);
  if (validation.rows.empty()) throw usage_error("data.validation: {} has no usable row", data.validation.front());
  return validation;
}

namespace {

/// Throws Error(usage) for a missing cell if training had none.
void refuse_missing(const Recipe::Data& data, const TableSchema& schema, const Table& table) {
  if (data.missing == "mean") return;
  const auto rows = all_rows(table);
  for (const auto& feature : schema.features)
    if (const auto* column = table.find(feature.column))
      if (const auto missing = rows_without(*column, rows); !missing.empty())
        throw usage_error("{}: `{}` is missing{}, and the training had no missing cells: data.missing is \"{}\"",
                          table.place(missing.front()), column->name, and_more(table, missing), data.missing);
}

}  // namespace

InputData open_table_inputs(const Recipe::Data& data, const std::vector<std::string>& files,
                            const nlohmann::json& learned) {
  check_source_files("the input", files);
  auto schema = TableSchema::from_json(learned);
  const auto table = read_other_table(data, files, schema);
  if (table.rows() == 0) throw usage_error("{} has no row", files.front());
  refuse_missing(data, schema, table);
  InputData inputs;
  auto records = data;
  if (!data.is_plugin()) records.format = format_of(files);
  inputs.names = record_ids(records, files);
  RUNNER_CHECK(std::ssize(inputs.names) == table.rows());
  if (std::ranges::find(schema.features, "id", &TableSchema::Feature::column) != schema.features.end())
    for (size_t row = 0; row < inputs.names.size(); ++row) inputs.names[row] = {{"id", row}};
  inputs.samples = std::make_unique<TableDataset>(data, table, all_rows(table), schema, /*targets=*/false);
  if (auto note = unknown_categories(schema, table, all_rows(table)); !note.empty()) inputs.notes.push_back(note);
  if (auto note = older_reading_note(data, learned, files); !note.empty()) inputs.notes.push_back(note);
  return inputs;
}

namespace {

/// Whether all training rows have the same value in the column.
bool has_one_value(const TrainingTable& training, const TableColumn& column) {
  return std::ranges::all_of(training.rows, [&](int64_t row) {
    const auto at = static_cast<size_t>(row), first = static_cast<size_t>(training.rows.front());
    return column.numeric ? column.numbers[at] == column.numbers[first] : column.texts[at] == column.texts[first];
  });
}

/// Whether all training rows, of which there are some, have the same value in two columns.
bool are_equal(const TrainingTable& training, const TableColumn& a, const TableColumn& b) {
  constexpr size_t few = 10;
  return training.rows.size() >= few && std::ranges::all_of(training.rows, [&](int64_t row) {
           const auto at = static_cast<size_t>(row);
           return cell_text(a, at) == cell_text(b, at);
         });
}

/// The first names, and how many more there are.
std::string first_names(const std::vector<std::string>& names) {
  constexpr size_t named = 10;
  if (names.size() <= named) return join(names, ", ");
  return fmt::format("{} and {} more", join({names.begin(), names.begin() + named}, ", "), names.size() - named);
}

/// Notes about columns that may be meant in another way than they are used.
std::vector<std::string> column_notes(const TrainingTable& training) {
  std::vector<std::string> notes;
  for (const auto& feature : training.schema.features) {
    const auto& column = *training.table.find(feature.column);
    const auto advice =
        column.numeric == feature.categorical ? "" : column_advice(training.table, column, training.rows);
    const auto count = feature.categories.size();
    const auto kind = !feature.categorical ? "a number"
                      : count == 1         ? "1 category"
                                           : fmt::format("{} categories", count);
    if (!advice.empty()) notes.push_back(fmt::format("the column `{}` becomes {}: {}", feature.column, kind, advice));
    for (const auto& target : training.schema.targets)
      if (are_equal(training, column, *training.table.find(target.column)))
        notes.push_back(
            fmt::format("the column `{}` equals the target `{}` in all training rows, so the model finds the answer "
                        "there; if rows to predict do not have it, add it to data.drop",
                        feature.column, target.column));
  }
  for (const auto& target : training.schema.targets) {
    const auto& column = *training.table.find(target.column);
    const auto advice =
        target.classes.empty() || column.numeric ? "" : column_advice(training.table, column, training.rows);
    if (target.classes.empty() && !column.code.empty())
      notes.push_back(
          fmt::format("the target `{}` is a number, and `{}` is written as codes are; if it is a class, set "
                      "train.loss = \"cross_entropy\"",
                      target.column, column.code));
    if (!advice.empty())
      notes.push_back(fmt::format("the target `{}` has {} classes: {}", target.column, target.classes.size(), advice));
  }
  return notes;
}

}  // namespace

std::vector<std::string> table_notes(const Recipe::Data& data) {
  const auto training = training_table(data);
  const auto& schema = training->schema;
  auto notes = column_notes(*training);
  std::vector<std::string> marked, constant;
  for (const auto& feature : schema.features) {
    if (feature.marks_missing) marked.push_back(feature.column);
    const bool flat = feature.categorical ? feature.categories.size() < 2 : data.standardize && feature.scale == 1;
    if (flat && has_one_value(*training, *training->table.find(feature.column))) constant.push_back(feature.column);
  }
  if (!marked.empty())
    notes.push_back(
        fmt::format("missing cells get the mean of their column, and a feature that says so: {}", first_names(marked)));
  if (!constant.empty())
    notes.push_back(
        fmt::format("columns with the same value in all training rows teach nothing: {}", first_names(constant)));
  const auto unknown = data.validation.empty() ? unknown_categories(schema, training->table, training->validation_rows)
                                               : unknown_in_validation(data, schema);
  if (!unknown.empty()) notes.push_back("data.validation: " + unknown);
  const auto left_out = training->table.rows() - std::ssize(training->rows) - std::ssize(training->validation_rows);
  if (left_out > 0)
    notes.push_back(fmt::format("{} with a missing cell are left out of data.train", counted(left_out, "row")));
  return notes;
}

std::vector<std::string> evaluation_notes(const Recipe::Data& data, const nlohmann::json& learned) {
  std::vector<std::string> notes;
  if (!data.is_table() || data.validation.empty() || learned.is_null()) return notes;
  const auto unknown = unknown_in_validation(data, TableSchema::from_json(learned));
  if (!unknown.empty()) notes.push_back("data.validation: " + unknown);
  if (auto note = older_reading_note(data, learned, data.validation); !note.empty()) notes.push_back(std::move(note));
  return notes;
}

}  // namespace runner
