// Recognises steps that do not end: a thread looks at the step in progress, because the training thread is the one that hangs.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace runner {

class StallWatch {
 public:
  struct Options {
    double factor = 10;  ///< of the median of the last steps; 0 turns it off
    std::chrono::duration<double> least{60};
    std::chrono::milliseconds look_every{1000};
  };
  struct Stall {
    int64_t step = 0;
    double seconds = 0;   ///< since the step began
    double expected = 0;  ///< the median
  };
  /// `report` is called on the thread, once for each step.
  StallWatch(Options options, std::function<void(const Stall&)> report);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;

  void step_begins(int64_t step);
  /// Validation and checkpoints, which follow, are not watched.
  void step_ends();

 private:
  void loop();
  double median() const;

  const Options options_;
  const std::function<void(const Stall&)> report_;
  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  bool stop_ = false, reported_ = false;
  int64_t step_ = 0;
  double begun_ = 0;  ///< steady_seconds(); 0: no step is in progress
  std::deque<double> seconds_;
  std::thread thread_;
};

}  // namespace runner
