#include "runner/logging/csv_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// A field; names with a comma, a quote or a line end are quoted (RFC 4180).
std::string field(const std::string& name) {
  if (name.find_first_of(",\"\n\r") == std::string::npos) return name;
  std::string quoted = "\"";
  for (char c : name) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string CsvLog::header() const {
  std::string text = "step";
  for (const auto& column : columns_) text += "," + field(column);
  return text + "\n";
}

void CsvLog::write_again(const std::string& rows) {
  std::error_code ignored;  // writing reports it
  fs::create_directories(path_.parent_path(), ignored);
  file_.reset();
  write_file_atomic(path_, header() + rows);
  file_.emplace(path_);
}

void CsvLog::begin(const AttemptStart& attempt) {
  columns_ = attempt.ledger.metric_names(attempt.run);
  std::map<int64_t, std::vector<std::string>> rows;
  for (size_t i = 0; i < columns_.size(); ++i)
    for (const auto& [step, value] : attempt.ledger.points(attempt.run, columns_[i]))
      rows.try_emplace(step, columns_.size()).first->second[i] = fmt::format("{}", value);
  std::string text;
  for (const auto& [step, cells] : rows) text += fmt::format("{},{}\n", step, join(cells, ","));
  write_again(text);
}

void CsvLog::points(const PointGroup& group) {
  const auto& points = group.points;
  const auto known = std::ssize(columns_), header_bytes = std::ssize(header());
  for (const auto& point : points)
    if (std::ranges::find(columns_, point.name) == columns_.end()) columns_.push_back(point.name);
  if (const auto added = std::ssize(columns_) - known; added > 0) {
    auto rows = read_file(path_).substr(static_cast<size_t>(header_bytes));
    for (size_t end = rows.find('\n'); end != std::string::npos;
         end = rows.find('\n', end + static_cast<size_t>(added) + 1))
      rows.insert(end, static_cast<size_t>(added), ',');
    write_again(rows);
  }
  std::vector<std::string> cells(columns_.size());
  for (const auto& point : points)
    cells[static_cast<size_t>(std::ranges::find(columns_, point.name) - columns_.begin())] =
        fmt::format("{}", point.value);
  file_->append(fmt::format("{},{}\n", group.step, join(cells, ",")));
}

}  // namespace runner
