// Reads the points of a run that were recorded since the last look, on a connection of its own, so that another thread than that of the
// Ledger can follow a run.
#pragma once
#include <map>
#include <memory>
#include <string>
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
  /// At most `most` further points, in order of steps for each metric. Empty: there are no more now. Throws Error(environment).
  std::vector<MetricPoint> next(size_t most);
  /// The last step of each metric that next() has returned or skip() has named.
  const std::map<std::string, int64_t>& read() const { return read_; }

 private:
  std::unique_ptr<sqlite::Database> database_;
  int64_t run_ = 0;
  std::map<std::string, int64_t> read_;
};

}  // namespace runner
