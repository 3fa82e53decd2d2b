#include "runner/data/table_summary.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/data/row_targets.hpp"
#include "runner/data/table_data.hpp"

namespace runner {

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
