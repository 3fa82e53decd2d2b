// Files of metrics for other programs, written while a run is alive, in addition to the ledger.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// One kind of file. The functions throw Error(environment) if the file cannot be written.
class MetricLog {
 public:
  virtual ~MetricLog() = default;
  /// An attempt begins after `step`. The values of earlier attempts that count are those in the ledger, which has no later ones.
  virtual void begin_attempt(int64_t step, const Ledger& ledger, const std::string& run) = 0;
  /// What is written survives a kill of this process.
  virtual void add(const std::vector<MetricPoint>& points) = 0;
  /// The file or folder for people.
  virtual fs::path path() const = 0;
};

/// The logs of a run, in its folder. A log that cannot be written gives one warning and then stays silent: the training continues.
class MetricLogs {
 public:
  MetricLogs() = default;
  /// `names`: values of run.loggers, "tensorboard" or "csv". `summary`: the recipe with all values, which TensorBoard shows as text.
  MetricLogs(const std::vector<std::string>& names, const fs::path& run_dir, const std::string& summary);
  void begin_attempt(int64_t step, const Ledger& ledger, const std::string& run);
  void add(const std::vector<MetricPoint>& points);
  std::vector<fs::path> paths() const;

 private:
  template <typename Call>
  void each(Call&& call);
  std::vector<std::unique_ptr<MetricLog>> logs_;
};

}  // namespace runner
