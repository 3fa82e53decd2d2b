// The time that a run took, without the pauses between its attempts.
#pragma once
#include <cstdint>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

class TrainedTime {
 public:
  TrainedTime(sqlite::Database& database, int64_t run);  ///< `run`: a row number
  /// The seconds that the attempts took together until a moment (Unix seconds). Within a pause: those until its begin.
  double at(double time) const;

 private:
  struct Attempt {
    double started, seconds, seconds_before;  ///< its own, and those of the attempts before
  };
  std::vector<Attempt> attempts_;  ///< in their order
};

}  // namespace runner
