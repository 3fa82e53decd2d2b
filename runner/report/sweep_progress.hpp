// The progress display of a sweep, on stderr: a line for each trial that ends, and on a terminal a status line below them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace runner {

struct SweepCounts {
  int64_t finished = 0, pruned = 0, failed = 0, running = 0;
  std::optional<int64_t> total;  ///< empty if the number of trials does not end the sweep
  std::optional<double> best;
  int64_t best_trial = 0;
};

/// Prints the progress. Log messages appear above the status line. There may be only one object at a time. Not thread-safe.
class SweepProgress {
 public:
  SweepProgress();
  ~SweepProgress();
  SweepProgress(const SweepProgress&) = delete;
  void update(const SweepCounts& counts);
  /// Prints a line above the status line.
  void line(const std::string& text);

 private:
  void erase() const;
  void draw() const;

  bool terminal_;
  double begun_, drawn_at_ = -1e9;
  std::string last_;  ///< text of the status line, redrawn after other lines
  static SweepProgress* shown;
};

}  // namespace runner
