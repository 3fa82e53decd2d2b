#include "runner/logging/csv_log.hpp"

#include <fmt/format.h>

#include "runner/base/clock.hpp"
#include "runner/base/quoting.hpp"

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
  known_ = {columns_.begin(), columns_.end()};
  waiting_.clear();  // the ledger has them
  new_columns_.clear();
  last_step_.reset();
  last_row_size_ = 0;
  std::string rows;
  each_recorded_step(attempt, [&](int64_t step, const StepValues& values) {
    const std::string text = row(step, values);
    rows += text;
    last_step_ = step;
    last_row_size_ = text.size();
    last_values_ = values;
  });
  write_again(rows);
}

void CsvLog::points(const PointGroup& group) {
  for (const auto& point : group.points)
    if (known_.insert(point.name).second) new_columns_.push_back(point.name);
  waiting_.emplace_back(group.step, group.points);
  write_waiting();
}

void CsvLog::end(const RunEnd&) {
  next_columns_ = 0;
  write_waiting();
}

void CsvLog::add_new_columns() {
  const std::string cells(new_columns_.size(), ',');
  const std::string old = read_file(path_);
  std::string rows;
  for (size_t begin = header().size(); begin < old.size();) {
    const size_t end = std::min(old.find('\n', begin), old.size());
    rows.append(old, begin, end - begin).append(cells).append("\n");
    begin = end + 1;
  }
  columns_.insert(columns_.end(), new_columns_.begin(), new_columns_.end());
  new_columns_.clear();
  if (last_step_) last_row_size_ += cells.size();
  write_again(rows);
}

void CsvLog::write_waiting() {
  constexpr double times_longer = 19;
  if (waiting_.empty()) return;
  if (!new_columns_.empty()) {
    const double begun = steady_seconds();
    if (begun < next_columns_) return;
    add_new_columns();
    const double ended = steady_seconds();
    next_columns_ = ended + times_longer * (ended - begun);
  }
  for (auto& [step, points] : std::exchange(waiting_, {})) {
    const size_t replaced = last_step_ == step ? last_row_size_ : 0;
    if (replaced == 0) last_values_.clear();
    for (const auto& point : points) last_values_[point.name] = point.value;
    const std::string text = row(step, last_values_);
    file_->replace_last(replaced, text);
    last_step_ = step;
    last_row_size_ = text.size();
  }
}

}  // namespace runner
