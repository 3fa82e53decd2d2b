// What a person sees while a sweep goes on: a line for each trial that ends, and on a terminal a last line that says
// how far it is. On stderr.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace runner {

struct SweepCounts {
  int64_t finished = 0, pruned = 0, failed = 0, running = 0;
  std::optional<int64_t> total;  ///< none: the sweep ends otherwise
  std::optional<double> best;
  int64_t best_trial = 0;
};

/// "12 of 40 trials, 2 running, 3 pruned, 1 failed, best 2.3112 (trial 7), 3m 20s".
std::string sweep_line(const SweepCounts& counts, double seconds);

/// At most one at a time: log lines step aside for it. One thread.
class SweepProgress {
 public:
  SweepProgress();
  ~SweepProgress();
  void update(const SweepCounts& counts);
  /// A line above the last one.
  void line(const std::string& text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
