#include "runner/data/table_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/row_targets.hpp"
#include "runner/data/table_data.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t classes_asked_most = 20;

const TableColumn& column_named(const Table& table, const std::string& key, const std::string& name) {
  if (const auto* column = table.find(name)) return *column;
  const auto names = table.names();
  const auto near = nearest(name, names);
  throw usage_error("{}: {} has no column `{}`{}; it has {}", key, table.files.front().path, name,
                    near ? fmt::format(" (did you mean `{}`?)", *near) : "", join(names, ", "));
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::ranges::find(list, name) != list.end();
}

/// The different cells: numbers in their order, texts in order of their bytes. Those of a feature may be missing, and of its texts
/// that are numbers, 1.0 is 1.
std::vector<std::string> values_of(const TableColumn& column, std::span<const int64_t> rows, bool feature) {
  std::set<std::string> texts;
  std::set<std::pair<double, std::string>> numbers;
  bool missing = false;
  for (const auto row : rows) {
    const auto at = static_cast<size_t>(row);
    if (column.missing(at))
      missing = true;
    else if (column.numeric)
      numbers.emplace(column.numbers[at], cell_text(column, at));
    else
      texts.emplace(feature ? class_text(column.texts[at], column.decimal) : column.texts[at]);
  }
  std::vector<std::string> values;
  if (missing && feature) values.emplace_back();
  for (const auto& [number, text] : numbers) values.push_back(text);
  values.insert(values.end(), texts.begin(), texts.end());
  return values;
}

/// column_advice(), or `otherwise`.
std::string advice_for(const Table& table, const TableColumn& column, std::span<const int64_t> rows,
                       const std::string& otherwise) {
  const auto advice = column.numeric ? "" : column_advice(table, column, rows);
  return advice.empty() ? otherwise : advice;
}

/// "; ADVICE" of column_advice(), or nothing.
std::string and_advice(const Table& table, const TableColumn& column, std::span<const int64_t> rows) {
  const auto advice = advice_for(table, column, rows, "");
  return advice.empty() ? "" : "; " + advice;
}

}  // namespace

ColumnMoments moments_of(const TableColumn& column, std::span<const int64_t> rows) {
  ColumnMoments moments;
  int64_t count = 0;
  double squares = 0, greatest = 0;
  for (const auto row : rows) greatest = std::fmax(greatest, std::abs(column.numbers[static_cast<size_t>(row)]));
  // A power of two, which changes no digit: squares neither overflow nor vanish.
  const double unit = greatest > 0 ? std::ldexp(1.0, std::ilogb(greatest)) : 1;
  for (const auto row : rows) {  // Welford (1962)
    const double number = column.numbers[static_cast<size_t>(row)] / unit;
    if (std::isnan(number)) {
      ++moments.missing;
      continue;
    }
    const double distance = number - moments.mean;
    moments.mean += distance / static_cast<double>(++count);
    squares += distance * (number - moments.mean);
  }
  moments.mean *= unit;
  if (count > 0) moments.deviation = std::min(greatest, unit * std::sqrt(squares / static_cast<double>(count)));
  return moments;
}

namespace {

TableSchema::Feature learn_feature(const Recipe::Data& data, const Table& table, const TableColumn& column,
                                   std::span<const int64_t> rows) {
  TableSchema::Feature feature{.column = column.name};
  feature.categorical = !column.numeric || contains(data.categorical, column.name);
  if (feature.categorical) {
    feature.categories = values_of(column, rows, /*feature=*/true);
    if (feature.categories.size() > categories_most)
      throw usage_error(
          "data.drop: the column `{}` of {} has {} different texts, and a column can have {} categories: {}",
          column.name, table.files.front().path, feature.categories.size(), categories_most,
          advice_for(table, column, rows, "add it to data.drop"));
    return feature;
  }
  const auto moments = moments_of(column, rows);
  feature.fill = moments.mean;
  feature.marks_missing = moments.missing > 0;
  if (!data.standardize) return feature;
  feature.mean = moments.mean;
  if (moments.deviation > 0) feature.scale = moments.deviation;
  return feature;
}

/// Refuses a target of texts that are meant as amounts: nearly all cells are numbers, with any decimal sign, and there are many.
void refuse_broken_numbers(const Table& table, const TableColumn& column, std::span<const int64_t> rows) {
  std::set<std::string> values;
  size_t cells = 0, numbers = 0;
  for (const auto row : rows) {
    const auto at = static_cast<size_t>(row);
    if (column.missing(at)) continue;
    ++cells;
    const auto& text = column.texts[at];
    if (!cell_number(text, '.') && !cell_number(text, ',')) continue;
    ++numbers;
    values.insert(text);
  }
  const bool many = values.size() > classes_asked_most || (numbers > 4 && values.size() * 2 > numbers);
  const auto advice = many && numbers * 5 > cells * 4 ? column_advice(table, column, rows) : "";
  if (!advice.empty())
    throw usage_error(
        "data.target: the column `{}` has amounts, but not all cells are numbers: {}. For classes, set train.loss = "
        "\"cross_entropy\"",
        column.name, advice);
}

/// data.target_type, or what the target columns are if it is "auto".
std::string target_type_of(const Recipe::Data& data, const Table& table, std::span<const int64_t> rows) {
  if (data.target_type != "auto") return data.target_type;
  const auto& first = column_named(table, "data.target", data.target.front());
  for (const auto& name : data.target)
    if (const auto& column = column_named(table, "data.target", name); !column.numeric && data.target.size() > 1)
      throw usage_error(
          "data.target: the column `{}` has texts; of several targets, each is a number, or has two values with "
          "train.loss = \"bce\"{}",
          name, and_advice(table, column, rows));
  if (!first.numeric) refuse_broken_numbers(table, first, rows);
  if (!first.numeric) return "class";
  if (data.target.size() > 1) return "number";
  const auto values = values_of(first, rows, false);
  const bool whole = std::ranges::all_of(rows, [&](int64_t row) {
    const double n = first.numbers[static_cast<size_t>(row)];
    return n == std::floor(n) || std::isnan(n);
  });
  if (whole && data.labels_texts()) return "class";  // as in Hugging Face's models
  if (whole && values.size() <= classes_asked_most)
    throw usage_error(
        "data.target: the column `{}` has the whole numbers {}: are they classes or amounts? Set train.loss = "
        "\"cross_entropy\" for classes, or \"mse\" for amounts",
        first.name, join(values, ", "));
  return "number";
}

TableSchema::Target learn_target(const Recipe::Data& data, const Table& table, const TableColumn& column,
                                 const std::string& type, std::span<const int64_t> rows) {
  TableSchema::Target target{.column = column.name};
  if (type == "number") {
    if (!column.numeric)
      throw usage_error("data.target: the column `{}` has texts, and this loss needs numbers: {}", column.name,
                        advice_for(table, column, rows, "name a column of numbers"));
    const auto moments = moments_of(column, rows);
    const bool standardize = data.standardize_target.value_or(data.standardize && !data.labels_texts());
    if (standardize && moments.deviation > 0) {
      target.mean = moments.mean;
      target.scale = moments.deviation;
    }
    return target;
  }
  target.classes = values_of(column, rows, false);
  if (type == "class" && !data.labels.empty()) {
    target.classes = data.labels;
    return target;
  }
  if (type == "binary" && target.classes.size() > 2)
    throw usage_error("data.target: the column `{}` has {} values, and train.loss = \"bce\" needs two: {}", column.name,
                      target.classes.size(), join(target.classes, ", "));
  if (target.classes.size() < 2)
    throw usage_error(
        "data.target: the column `{}` has only one value in the training rows, so there is nothing to learn",
        column.name);
  if (target.classes.size() > categories_most * 100)
    throw usage_error("data.target: the column `{}` has {} classes; for amounts set train.loss = \"mse\"", column.name,
                      target.classes.size());
  return target;
}

}  // namespace

int64_t TableSchema::inputs() const {
  int64_t count = 0;
  for (const auto& feature : features) count += feature.width();
  return count;
}

int64_t TableSchema::outputs() const {
  return target_type == "class" ? std::ssize(targets.front().classes) : std::ssize(targets);
}

std::vector<std::string> TableSchema::text_columns() const {
  std::vector<std::string> names;
  for (const auto& feature : features)
    if (feature.categorical) names.push_back(feature.column);
  for (const auto& target : targets)
    if (!std::ranges::all_of(target.classes, [](const auto& text) { return finite_number(text).has_value(); }))
      names.push_back(target.column);
  return names;
}

json TableSchema::to_json() const {
  json list = {
      {"version", version}, {"target_type", target_type}, {"features", json::array()}, {"targets", json::array()}};
  for (const auto& feature : features) {
    json one = {{"column", feature.column}};
    if (feature.categorical)
      one["categories"] = feature.categories;
    else
      one.update({{"mean", feature.mean},
                  {"scale", feature.scale},
                  {"fill", feature.fill},
                  {"marks_missing", feature.marks_missing}});
    list["features"].push_back(one);
  }
  for (const auto& target : targets) {
    json one = {{"column", target.column}};
    if (target_type == "number")
      one.update({{"mean", target.mean}, {"scale", target.scale}});
    else
      one["classes"] = target.classes;
    if (target.numbered) one["numbered"] = true;
    list["targets"].push_back(one);
  }
  return list;
}

TableSchema TableSchema::from_json(const json& value) {
  TableSchema schema;
  schema.target_type = value.at("target_type");
  schema.version = value.value("version", int64_t{1});
  for (const auto& one : value.at("features")) {
    Feature feature{.column = one.at("column"), .categorical = one.contains("categories")};
    if (feature.categorical) {
      feature.categories = one.at("categories");
    } else {
      feature.mean = one.at("mean");
      feature.scale = one.at("scale");
      feature.fill = one.at("fill");
      feature.marks_missing = one.at("marks_missing");
    }
    schema.features.push_back(std::move(feature));
  }
  for (const auto& one : value.at("targets"))
    schema.targets.push_back({.column = one.at("column"),
                              .mean = one.value("mean", 0.0),
                              .scale = one.value("scale", 1.0),
                              .classes = one.value("classes", std::vector<std::string>()),
                              .numbered = one.value("numbered", false)});
  return schema;
}

std::vector<double> target_scales(const json& learned) {
  std::vector<double> scales;
  if (learned.is_object() && learned.value("target_type", "") == "number")
    for (const auto& target : learned.at("targets")) scales.push_back(target.value("scale", 1.0));
  return scales;
}

std::vector<int64_t> rows_without(const TableColumn& column, std::span<const int64_t> rows) {
  std::vector<int64_t> list;
  std::ranges::copy_if(rows, std::back_inserter(list),
                       [&](int64_t row) { return column.missing(static_cast<size_t>(row)); });
  return list;
}

void leave_out_missing(const Recipe::Data& data, const Table& table, std::vector<int64_t>& rows) {
  std::erase_if(rows, [&](int64_t row) {
    for (const auto& column : table.columns) {
      if (!column.missing(static_cast<size_t>(row)) || contains(data.drop, column.name)) continue;
      const bool target = contains(data.target, column.name);
      if (data.missing == "drop") return true;
      const auto more = target || data.missing == "error" ? and_more(table, rows_without(column, rows)) : "";
      if (target)
        throw usage_error("{}: the target `{}` is missing{}; data.missing = \"drop\" leaves such rows out",
                          table.place(row), column.name, more);
      if (data.missing == "error")
        throw usage_error("{}: `{}` is missing{}, and data.missing is \"error\"", table.place(row), column.name, more);
    }
    return false;
  });
}

TableSchema learn_schema(const Recipe::Data& data, const Table& table, std::span<const int64_t> rows) {
  TableSchema schema;
  for (const auto& name : data.drop) column_named(table, "data.drop", name);
  for (const auto& name : data.categorical) column_named(table, "data.categorical", name);
  schema.target_type = target_type_of(data, table, rows);
  for (const auto& name : data.target)
    schema.targets.push_back(
        learn_target(data, table, column_named(table, "data.target", name), schema.target_type, rows));
  for (const auto& column : table.columns)
    if (!contains(data.drop, column.name) && !contains(data.target, column.name))
      schema.features.push_back(learn_feature(data, table, column, rows));
  if (schema.features.empty() && !data.labels_texts())
    throw usage_error("data.drop: no column is left: {} has {}", table.files.front().path, join(table.names(), ", "));
  return schema;
}

namespace {

/// Kind and number of features.
void add_use(const TableSchema& schema, ColumnSummary& summary) {
  const auto feature = std::ranges::find(schema.features, summary.name, &TableSchema::Feature::column);
  const auto target = std::ranges::find(schema.targets, summary.name, &TableSchema::Target::column);
  if (feature != schema.features.end()) {
    summary.kind = feature->categorical ? "categories" : "number";
    summary.features = feature->width();
  } else if (target == schema.targets.end()) {
    summary.kind = "left out";
  } else if (target->classes.empty()) {
    summary.kind = "target: number";
  } else {
    summary.kind = fmt::format("target: {} classes", target->classes.size());
  }
}

}  // namespace

std::vector<ColumnSummary> table_summary(const Recipe::Data& data) {
  constexpr size_t examples_most = 3;
  const auto training = training_table(data);
  std::vector<ColumnSummary> list;
  for (const auto& column : training->table.columns) {
    ColumnSummary summary{.name = column.name};
    add_use(training->schema, summary);
    for (const auto row : training->rows) {
      const auto at = static_cast<size_t>(row);
      summary.missing += column.missing(at);
      if (summary.examples.size() == examples_most || column.missing(at)) continue;
      if (auto text = cell_text(column, at); std::ranges::find(summary.examples, text) == summary.examples.end())
        summary.examples.push_back(std::move(text));
    }
    if (column.numeric) {
      const auto moments = moments_of(column, training->rows);
      summary.mean = moments.mean;
      summary.std = moments.deviation;
    }
    list.push_back(std::move(summary));
  }
  return list;
}

}  // namespace runner
