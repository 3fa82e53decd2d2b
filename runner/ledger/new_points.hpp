// Reads the points of a run that were recorded since the last look, on a connection of its own, so that another thread than that of the
// Ledger can follow a run.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/ledger/ledger.hpp"

namespace runner {

namespace sqlite {
class Database;
}

class NewPoints {
 public:
  /// `home`: as for Ledger. The ledger must exist.
  NewPoints(const std::string& home, const std::string& run);
  ~NewPoints();

  /// Points of `metric` up to `step` were read already.
  void skip(const std::string& metric, int64_t step);
  /// At most `most` further points, in order of steps for each metric. Empty: there are no more now. If another file has replaced the
  /// ledger, that one is read. Throws Error(environment).
  std::vector<MetricPoint> next(size_t most);
  /// The last step of each metric that next() has returned or skip() has named.
  const std::map<std::string, int64_t>& read() const { return read_; }
  /// The value of a metric at a step, if the ledger has one.
  std::optional<double> value(const std::string& metric, int64_t step);

 private:
  /// Opens the file that is there now. False: the run is not in it.
  bool follow_file();

  const std::string home_, id_;
  std::unique_ptr<sqlite::Database> database_;
  std::pair<uint64_t, uint64_t> file_{};  ///< device and inode of what is open
  int64_t run_ = 0;                       ///< 0: not in this file yet
  std::map<std::string, int64_t> read_;
};

}  // namespace runner
