// Metrics as a table of comma-separated values: metrics.csv.
#pragma once
#include <optional>

#include "runner/logging/append_file.hpp"
#include "runner/logging/recorded_history.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// Columns: step, then one for each metric, in the order of their first values. A step is a row; metrics without a value then are empty
/// cells. Values of the step in the last row are added to that row; those of an earlier step become a row of their own until the next
/// attempt. A new metric adds a column at the end: the file is written again. An attempt begins with the values in the ledger. Numbers
/// have as many digits as their double needs, or are nan, inf and -inf.
class CsvLog final : public RunListener {
 public:
  explicit CsvLog(fs::path path) : path_(std::move(path)) {}
  std::string place() const override { return path_.string(); }
  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override;

 private:
  std::string header() const;
  std::string row(int64_t step, const StepValues& values) const;
  void write_again(const std::string& rows);
  fs::path path_;
  std::vector<std::string> columns_;
  std::optional<AppendFile> file_;
  std::optional<int64_t> last_step_;  ///< of the last row
  StepValues last_values_;
};

}  // namespace runner
