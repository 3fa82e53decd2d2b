#include "runner/data/row_targets.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "strategies/engine/row_batch.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

std::vector<float> encode(const Recipe::Data& data, const TableSchema::Target& target, const std::string& type,
                          const Table& table, const std::vector<int64_t>& rows) {
  const auto& column = column_of(table, target.column);
  const auto index = class_indices(target.classes);
  std::vector<float> values;
  std::vector<int64_t> refused;  // rows
  for (const auto row : rows) {
    const auto at = static_cast<size_t>(row);
    if (type == "number") {
      const auto number = number_in(column, row);
      if (!number) refused.push_back(row);
      values.push_back(standardized(table, column, row, number.value_or(target.mean), target.mean, target.scale));
      continue;
    }
    const auto found = index.find(cell_text(column, at));
    if (const auto place = number_in(column, row); found == index.end() && target.numbered && place && *place >= 0 &&
                                                   *place < static_cast<double>(index.size()) &&
                                                   *place == std::floor(*place)) {
      values.push_back(static_cast<float>(*place));
      continue;
    }
    if (found == index.end())
      refused.push_back(row);
    else
      values.push_back(static_cast<float>(found->second));
  }
  if (refused.empty()) return values;
  const auto text = cell_text(column, static_cast<size_t>(refused.front()));
  const auto place = table.place(refused.front()), more = and_more(table, refused);
  if (type == "number")
    throw usage_error("{}: `{}` is not a number in the column `{}`{}{}", place, text, column.name, more,
                      decimal_hint(text, column.decimal));
  throw usage_error(
      "{}: the class `{}` of `{}` is not {}{}{}", place, text, column.name,
      data.labels.empty() ? "in the training rows" : "one of " + join(data.labels, ", "), more,
      data.validation_fraction && data.labels.empty() ? "; another data.validation_fraction may help" : "");
}

}  // namespace

RowTargets::RowTargets(const Recipe::Data& data, const Table& table, const std::vector<int64_t>& rows,
                       const TableSchema& schema)
    : RowTargets(schema) {
  for (const auto& target : schema.targets) values_.push_back(encode(data, target, schema.target_type, table, rows));
}

RowTargets::RowTargets(const TableSchema& schema)
    : classes_(schema.target_type == "class"), count_(std::ssize(schema.targets)) {}

BatchField RowTargets::field() const { return classes_ ? labels_field() : targets_field(count_); }

void RowTargets::write(size_t at, HostBatch& batch, size_t field, int64_t row) const {
  if (classes_) {
    batch.row<int64_t>(field, row)[0] = values_.empty() ? ignored_target : static_cast<int64_t>(values_[0][at]);
    return;
  }
  const auto targets = batch.row<float>(field, row);
  std::ranges::fill(targets, std::nanf(""));
  for (size_t t = 0; t < values_.size(); ++t) targets[t] = values_[t][at];
}

const TableColumn& column_of(const Table& table, const std::string& name) {
  if (const auto* found = table.find(name)) return *found;
  const auto names = table.names();
  const auto near = nearest(name, names);
  throw usage_error("{} has no column `{}`, which the training data have{}; it has {}", table.files.front().path, name,
                    near ? fmt::format(" (did you mean `{}`?)", *near) : "", join(names, ", "));
}

std::optional<double> number_in(const TableColumn& column, int64_t row) {
  const auto at = static_cast<size_t>(row);
  return column.numeric ? std::optional(column.numbers[at]) : cell_number(column.texts[at], column.decimal);
}

float standardized(const Table& table, const TableColumn& column, int64_t row, double number, double mean,
                   double scale) {
  const double distance = number - mean;
  const auto value = static_cast<float>(std::isfinite(distance) ? distance / scale : number / scale - mean / scale);
  if (!std::isinf(value)) return value;
  throw usage_error(
      "{}: `{}` is {}, and the model computes with numbers of at most 3.4e38: divide the column{}, or add it to "
      "data.drop",
      table.place(row), column.name, cell_text(column, static_cast<size_t>(row)),
      mean == 0 && scale == 1 ? ", standardize it (data.standardize)" : "");
}

std::string cell_text(const TableColumn& column, size_t row) {
  if (column.missing(row)) return "";
  return column.texts.empty() ? number_text(column.numbers[row]) : column.texts[row];
}

std::map<std::string, int32_t> class_indices(const std::vector<std::string>& values) {
  std::map<std::string, int32_t> index;
  for (size_t i = 0; i < values.size(); ++i) index.emplace(values[i], static_cast<int32_t>(i));
  return index;
}

}  // namespace runner
