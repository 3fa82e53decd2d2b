// Lines about the progress of tokenising.
#pragma once
#include <atomic>
#include <exception>
#include <mutex>

#include "runner/base/clock.hpp"

namespace runner {

struct TokenizingStopped : std::exception {};

/// Safe to use from several threads.
class TokenizingProgress {
 public:
  /// At most one line in `quiet_seconds`.
  explicit TokenizingProgress(size_t total_bytes, double quiet_seconds = 2)
      : total_bytes_(total_bytes), quiet_seconds_(quiet_seconds) {}
  /// Adds what was tokenised since the last call.
  void add(size_t bytes, int64_t tokens);
  /// Adds bytes whose tokens were found in the cache: they are done, but say nothing about the time that is left.
  void skip(size_t bytes);
  /// From now on, add() and go_on() throw TokenizingStopped on all threads.
  void stop() { stopped_ = true; }
  void go_on() const {
    if (stopped_) throw TokenizingStopped();
  }
  /// The last line, if add() has printed one.
  void finish();

 private:
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  size_t total_bytes_, bytes_ = 0, skipped_ = 0;
  double quiet_seconds_;
  int64_t tokens_ = 0;
  double begun_ = steady_seconds(), last_line_ = begun_;
  bool printed_ = false;
};

}  // namespace runner
