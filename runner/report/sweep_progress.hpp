// The progress display of a sweep, on stderr: a line for each trial that ends, and on a terminal a status line below them.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace runner {

struct SweepCounts {
  int64_t finished = 0, pruned = 0, failed = 0, running = 0;
  std::optional<int64_t> total;  ///< empty if the number of trials does not end the sweep
  std::optional<double> best;
  int64_t best_trial = 0;
};

/// "12 of 40 trials, 2 running, 3 pruned, 1 failed, best 2.3112 (trial 7), 3m 20s".
std::string sweep_line(const SweepCounts& counts, double seconds);

/// Prints the progress. Log messages appear above the status line. There may be only one object at a time. Not thread-safe.
class SweepProgress {
 public:
  SweepProgress();
  ~SweepProgress();
  void update(const SweepCounts& counts);
  /// Prints a line above the status line.
  void line(const std::string& text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
