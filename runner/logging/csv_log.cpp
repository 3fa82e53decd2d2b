#include "runner/logging/csv_log.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/csv.hpp"

namespace runner {

std::string CsvLog::header() const {
  std::string text = "step";
  for (const auto& column : columns_) text += "," + csv_cell(column);
  return text + "\n";
}

void CsvLog::write_again(const std::string& rows) {
  std::error_code ignored;  // writing reports it
  fs::create_directories(path_.parent_path(), ignored);
  file_.reset();
  write_file_atomic(path_, header() + rows);
  file_.emplace(path_);
}

std::string CsvLog::row(int64_t step, const StepValues& values) const {
  std::string text = std::to_string(step);
  for (const auto& column : columns_) {
    const auto found = values.find(column);
    text += found == values.end() ? "," : fmt::format(",{}", found->second);
  }
  return text + "\n";
}

void CsvLog::begin(const AttemptStart& attempt) {
  columns_ = attempt.ledger.metric_names(attempt.run);
  last_step_.reset();
  std::string rows;
  for (auto& [step, values] : recorded_history(attempt)) {
    rows += row(step, values);
    last_step_ = step;
    last_values_ = values;
  }
  write_again(rows);
}

void CsvLog::points(const PointGroup& group) {
  const auto known = std::ssize(columns_), header_bytes = std::ssize(header());
  for (const auto& point : group.points)
    if (std::ranges::find(columns_, point.name) == columns_.end()) columns_.push_back(point.name);
  if (const auto added = std::ssize(columns_) - known; added > 0) {
    auto rows = read_file(path_).substr(static_cast<size_t>(header_bytes));
    for (size_t end = rows.find('\n'); end != std::string::npos;
         end = rows.find('\n', end + static_cast<size_t>(added) + 1))
      rows.insert(end, static_cast<size_t>(added), ',');
    write_again(rows);
  }
  const size_t replaced = last_step_ == group.step ? row(group.step, last_values_).size() : 0;
  if (replaced == 0) last_values_.clear();
  last_step_ = group.step;
  for (const auto& point : group.points) last_values_[point.name] = point.value;
  file_->replace_last(replaced, row(group.step, last_values_));
}

}  // namespace runner
