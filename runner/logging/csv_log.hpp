// Metrics as a table of comma-separated values: metrics.csv.
#pragma once
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runner/logging/append_file.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// Columns: step, then one for each metric, in the order of their first values. A step is a row; metrics without a value then are empty
/// cells. Values of the step in the last row are added to that row; those of an earlier step become a row of their own until the next
/// attempt. A new metric adds a column at the end. The file is written again for that, at most a twentieth of the time: until then, the
/// new points wait. An attempt begins with the values in the ledger. Numbers have as many digits as their double needs, or are nan, inf
/// and -inf.
class CsvLog final : public RunListener {
 public:
  explicit CsvLog(fs::path path) : path_(std::move(path)) {}
  std::string place() const override { return path_.string(); }
  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override;
  void tick() override { write_waiting(); }
  void end(const RunEnd& end) override;

 private:
  std::string header() const;
  std::string row(int64_t step, const StepValues& values) const;
  void write_again(const std::string& rows);
  void add_new_columns();
  /// Nothing if the points need new columns before it is time for them.
  void write_waiting();

  fs::path path_;
  std::vector<std::string> columns_, new_columns_;  ///< in the file, and those of points that wait
  std::set<std::string> known_;                     ///< both
  std::optional<AppendFile> file_;
  std::optional<int64_t> last_step_;  ///< of the last row
  size_t last_row_size_ = 0;
  StepValues last_values_;
  std::vector<std::pair<int64_t, std::vector<MetricPoint>>> waiting_;  ///< points of a step, not written yet
  double next_columns_ = 0;                                            ///< when there may be new columns again
};

}  // namespace runner
