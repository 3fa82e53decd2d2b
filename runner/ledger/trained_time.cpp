#include "runner/ledger/trained_time.hpp"

#include <algorithm>
#include <limits>

namespace runner {

TrainedTime::TrainedTime(sqlite::Database& database, int64_t run) {
  double before = 0;
  auto rows = database.query(
      "SELECT started, ifnull(ended, heartbeat) FROM attempt WHERE run = ? ORDER BY started, number", run);
  while (rows.step()) {
    const double seconds = std::max(0.0, rows.real(1) - rows.real(0));
    attempts_.push_back({.started = rows.real(0), .seconds = seconds, .seconds_before = before});
    before += seconds;
  }
  // The last one may go on.
  if (!attempts_.empty()) attempts_.back().seconds = std::numeric_limits<double>::infinity();
}

double TrainedTime::at(double time) const {
  const auto next = std::ranges::upper_bound(attempts_, time, {}, &Attempt::started);
  if (next == attempts_.begin()) return 0;
  const Attempt& attempt = *std::prev(next);
  return attempt.seconds_before + std::min(time - attempt.started, attempt.seconds);
}

}  // namespace runner
